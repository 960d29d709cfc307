"""Request bodies of the API. Limits are checked elsewhere, by name."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from regard.analysis.interventions import Head, Place
from regard.core.errors import RegardError
from regard.lab.data.examples import from_json
from regard.lab.tasks.settings import TEMPERATURE
from regard.lab.web.limits import Limits
from regard.lab.web.refusal import RefusedError, over


def _sanitize(value: Any) -> Any:
    """Replace lone surrogates, which JSON may contain and UTF-8 cannot encode."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_sanitize)]
Second = Annotated[
    Text | None, Field(description="Second text, for a run that reads two (text=FIRST,SECOND).")
]


def _value(value: Any) -> Any:
    if not isinstance(value, str | bool | int | float | None):
        raise ValueError("must be a text, a number, true, false or null")
    return _sanitize(value)


Scalar = str | bool | int | float | None
Value = Annotated[Scalar, PlainValidator(_value, json_schema_input_type=Scalar)]
Further = Annotated[
    dict[Annotated[Text, Field(max_length=4096)], Value] | None,
    Field(
        max_length=1000,
        description="Values of further columns by name, for a run that reads them (features=…).",
    ),
]
Name = Annotated[Text, Field(description="Name of a run, as listed by /runs.", max_length=4096)]


def _input(text: str, second: str | None, columns: Mapping[str, Any] | None) -> str:
    return from_json({"text": text, "second": second, "columns": columns})


class RunRequest(BaseModel):
    """A request to a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    run: Name


class TextsRequest(RunRequest):
    """A request with one text or several."""

    text: Text | None = None
    second: Second = None
    texts: list[Text] | None = None
    columns: Further = None
    seconds: list[Text] | None = Field(default=None, description="Second text of each of texts.")
    rows: list[Further] | None = Field(default=None, description="Columns of each of texts.")

    def all(self, limits: Limits) -> list[str]:
        """Return the inputs.

        Raises: neither or both of text and texts; too many; another number of seconds or rows.
        """
        if (self.text is None) == (self.texts is None):
            raise RefusedError(422, "give either text or texts")
        alone = self.second, self.columns
        if self.text is not None:
            if not (self.seconds is None and self.rows is None):
                raise RefusedError(422, "seconds and rows belong to texts; give second and columns")
            return [_input(self.text, *alone)]
        texts = list(self.texts or [])
        if len(texts) > limits.texts:
            raise over("texts", limits.texts, len(texts))
        nothing = [None] * len(texts)
        seconds = nothing if self.seconds is None else self.seconds
        rows = nothing if self.rows is None else self.rows
        if alone != (None, None) or not len(texts) == len(seconds) == len(rows):
            raise RefusedError(422, "give one of seconds and of rows for each of texts")
        return [*map(_input, texts, seconds, rows)]


class TranslationRequest(TextsRequest):
    """A request with one text or several, and the number of answers for each."""

    best: int = Field(default=1, ge=1, le=1_000_000)


class TextRequest(RunRequest):
    """A request with one text, or two, and further columns."""

    text: Text
    second: Second = None
    columns: Further = None

    @property
    def input(self) -> str:
        """Return the input of the model."""
        return _input(self.text, self.second, self.columns)


class LookRequest(TextRequest):
    """A request with a text and the tokens written for it, if not the model's own answer."""

    written: list[Annotated[int, Field(ge=0, le=1_000_000_000)]] | None = Field(
        default=None, description="Ids of the tokens that /generate returned, in order."
    )

    def tokens(self, limits: Limits) -> list[int] | None:
        """Return the written tokens. Raises: more than /generate writes."""
        if self.written is not None and len(self.written) > limits.new_tokens + 1:
            raise over("new_tokens", limits.new_tokens, len(self.written))
        return self.written


class AttentionRequest(LookRequest):
    """A request for a layer or all, and a head or all, both counted from 1."""

    layer: int | None = Field(default=None, ge=1, le=1_000_000)
    head: int | None = Field(default=None, ge=1, le=1_000_000)


class MatrixRequest(LookRequest):
    """A request for one head of one layer, counted from 1 in the order of /look."""

    layer: int = Field(ge=1, le=1_000_000)
    head: int = Field(default=1, ge=1, le=1_000_000)


class WritingRequest(TextRequest):
    """A request to generate from a text, with the settings of sampling."""

    new_tokens: int = Field(
        default=64,
        ge=1,
        le=1_000_000_000,
        description="Maximum number of tokens. A language model can write past its context: when "
        "the context is full, its last half is read again.",
    )
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Sampling temperature: 1 samples from the model's distribution, smaller values "
        "are more deterministic, 0 takes the most likely token. "
        f"null: {TEMPERATURE:g} for a language model, else 0.",
    )
    top_k: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Sample from the k most likely tokens (0 = no limit).",
    )
    top_p: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Sample from the most likely tokens with this total probability.",
    )
    seed: int = Field(default=0, ge=0, le=2**32, description="Random seed for sampling.")


class HeadRequest(BaseModel):
    """A head, counted from 1, of a layer that /parts lists."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    layer: Text = Field(max_length=400)
    head: int = Field(ge=1, le=1_000_000)


class WithoutRequest(TextRequest):
    """A request to answer a text with some heads switched off."""

    heads: list[HeadRequest] = Field(min_length=1, max_length=4096)


class PatchRequest(TextRequest):
    """A request to answer a text with the states of a block, or of a head, of another text."""

    other: Text
    other_second: Second = None
    block: Text | None = Field(
        default=None, max_length=400, description="Name of a block, as listed by /parts."
    )
    head: HeadRequest | None = Field(default=None, description="A head, instead of a block.")
    positions: list[Annotated[int, Field(ge=0, le=1_000_000)]] | None = Field(
        default=None, max_length=4096, description="Tokens to replace, from 0; null: all."
    )

    @property
    def other_input(self) -> str:
        """Return the other input."""
        return _input(self.other, self.other_second, self.columns)

    @property
    def place(self) -> Place:
        """Return the block or the head. Raises: neither or both."""
        if self.head is not None and self.block is None:
            return Head(self.head.layer, self.head.head)
        if self.block is not None and self.head is None:
            return self.block
        raise RegardError("give either block or head, as listed by /parts")


class AttributionRequest(TextRequest):
    """A request to attribute a number behind the answer to the tokens of a text."""

    choice: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="Index of the number to explain, in the response's choices; null: the default.",
    )


class DisagreementsRequest(BaseModel):
    """A request for texts that only one of two runs gets right: a filter and a page."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    a: Name
    b: Name
    right: Literal["", "a", "b"] = Field(
        default="", description="a or b: the only run that is right."
    )
    truth: Text = Field(default="", max_length=4096, description="Reference answer.")
    contains: Text = Field(
        default="", max_length=1000, description="Words in the text or in an answer."
    )
    offset: int = Field(default=0, ge=0, le=1_000_000_000)
    limit: int = Field(default=20, ge=1, le=200)

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of `Disagreements` is asked for, ignoring case."""
        if self.right not in ("", row["right"]) or self.truth not in ("", row["truth"]):
            return False
        words, said = self.contains.casefold(), (row[key] for key in ("truth", "a", "b"))
        return any(words in each.casefold() for each in (from_json(row), *said))
