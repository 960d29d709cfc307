"""What requests ask. What is too much is refused by the limit's name, not here."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from regard.tasks.settings import TEMPERATURE
from regard.web.disagreements import Filter, Side
from regard.web.limits import Limits
from regard.web.refusal import over


def _sound(value: Any) -> Any:
    """A text without half surrogate pairs, which JSON may carry and no answer could."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_sound)]
Name = Annotated[Text, Field(description="A run, as /runs names it.", max_length=4096)]


class Asked(BaseModel):
    """A request about a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    run: Name


class AskedTexts(Asked):
    """One text, or several."""

    text: Text | None = None
    texts: list[Text] | None = None

    def all(self, limits: Limits) -> list[str]:
        """The texts. Errors: none, both ways of giving them, too many."""
        if (self.text is None) == (self.texts is None):
            raise ValueError("give text or texts")
        found = [self.text] if self.text is not None else list(self.texts or [])
        if len(found) > limits.texts:
            raise over("texts", limits.texts, len(found))
        return found


class AskedTranslation(AskedTexts):
    """One text, or several, and how many answers to each."""

    best: int = Field(default=1, ge=1, le=1_000_000)


class AskedText(Asked):
    """One text."""

    text: Text


class AskedLook(AskedText):
    """One text, and what was written for it, if not the model's own answer is asked about."""

    written: list[Annotated[int, Field(ge=0, le=1_000_000_000)]] | None = Field(
        default=None, description="The numbers (id) of the tokens that /generate told, in order."
    )

    def tokens(self, limits: Limits) -> list[int] | None:
        """What was written. Errors: more than /generate writes."""
        if self.written is not None and len(self.written) > limits.new_tokens + 1:
            raise over("new_tokens", limits.new_tokens, len(self.written))
        return self.written


class AskedAttention(AskedLook):
    """One text; one layer or all; one head or all. Both are counted from 1."""

    layer: int | None = Field(default=None, ge=1, le=1_000_000)
    head: int | None = Field(default=None, ge=1, le=1_000_000)


class AskedMatrix(AskedLook):
    """One head of one layer, counted from 1, as /look lists them."""

    layer: int = Field(ge=1, le=1_000_000)
    head: int = Field(default=1, ge=1, le=1_000_000)


class AskedWriting(AskedText):
    """A text to write from, and how."""

    new_tokens: int = Field(
        default=64,
        ge=1,
        le=1_000_000_000,
        description="Tokens at most. A model that goes on with texts writes past what it reads at "
        "once: when that is full, its last half is read anew.",
    )
    temperature: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Draw each token: 1 as the model thinks, less: bolder; 0: take the likeliest. "
        f"null: {TEMPERATURE:g} of a model that goes on with texts, else 0.",
    )
    top_k: int = Field(
        default=0, ge=0, le=1_000_000, description="Draw of so many tokens; 0: of all."
    )
    top_p: float = Field(default=1.0, gt=0, le=1, description="Draw of the tokens of this share.")
    seed: int = Field(default=0, ge=0, le=2**32, description="Of drawing: the same draws the same.")


class AskedDisagreements(BaseModel):
    """Two runs, which of the texts that one of them gets right, and which page of these."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    a: Name
    b: Name
    right: Side = Field(default="", description="a or b: the run that alone is right.")
    truth: Text = Field(default="", max_length=4096, description="The true answer.")
    contains: Text = Field(default="", max_length=1000, description="Words of text or answers.")
    offset: int = Field(default=0, ge=0, le=1_000_000_000)
    limit: int = Field(default=20, ge=1, le=200)

    @property
    def filter(self) -> Filter:
        """Which texts."""
        return Filter(self.right, self.truth, self.contains)
