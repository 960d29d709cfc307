"""`HeadSpec`, the sizes and parts of a mechanism's heads, and mechanisms built from it."""

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor, nn

from regard.attention.mechanism import Mechanism
from regard.attention.mechanisms.linformer import Linformer, named_compress
from regard.attention.mechanisms.stages import STAGES, FirstValues, OutputStage
from regard.attention.normalizer import Normalizer
from regard.attention.positions import make_score
from regard.attention.score import Score
from regard.core.errors import RegardError


@dataclass(frozen=True)
class HeadSpec:
    """The sizes and parts of the heads of a mechanism, as `MultiHeadAttention` describes them.

    Raise a RegardError for sizes below 1, and for a width that does not divide by ``heads`` or
    heads that do not divide by ``key_value_heads``.

    >>> spec = HeadSpec(12, 4, key_value_heads=2)
    >>> spec.each_head, spec.groups, spec.memory_width
    (3, 2, 12)
    >>> HeadSpec(16, 4).divided(2).heads, HeadSpec(16, 4).divided(2).each_head
    (8, 2)
    """

    width: int
    heads: int
    score: str | type[Score] | Score = "scaled-dot"
    position: str = "none"
    normalize: str | Normalizer = "softmax"
    dropout: float = 0.0
    key_width: int | None = None
    value_width: int | None = None
    key_value_heads: int | None = None
    head_width: int | None = None
    bias: bool = True
    output_projection: bool = True
    length: int | None = None
    compress: str | Linformer = "none"
    stages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        width, heads, groups = self.width, self.heads, self.groups
        if heads < 1 or width < 1:
            raise RegardError(
                f"width and heads must be at least 1, not width={width} and heads={heads}"
            )
        if self.head_width is None and width % heads:
            near = width - width % heads or heads
            raise RegardError(
                f"width={width} is not divisible by heads={heads}; use a width of {near} or "
                f"{near + heads}, or set head_width="
            )
        if heads % groups:
            raise RegardError(
                f"heads={heads} is not divisible by key_value_heads={groups}; choose a divisor"
            )

    @property
    def groups(self) -> int:
        """The number of heads of keys and values."""
        return self.key_value_heads or self.heads

    @property
    def each_head(self) -> int:
        """The number of columns of one head."""
        return self.head_width or self.width // self.heads

    @property
    def memory_width(self) -> int:
        """The number of columns of the input of the keys."""
        return self.key_width or self.width

    def divided(self, parts: int) -> "HeadSpec":
        """Return the spec of heads that are divided into so many heads of fewer columns."""
        return replace(self, heads=parts * self.heads, head_width=self.each_head // parts)

    def make_score(self) -> Score:
        """Return the score, built for heads of this width, or a Score as it is.

        Raise a RegardError for a Score together with positions, or with another number of heads.
        """
        score, position, heads = self.score, self.position, self.heads
        if not isinstance(score, Score):
            width = self.each_head
            return make_score(score, position, width, width, heads=heads, length=self.length)
        if position != "none":
            raise RegardError(
                f"position={position!r} applies only to a score given by name; wrap the Score in "
                "its position yourself"
            )
        if score.heads not in (None, heads):
            raise RegardError(f"the score has {score.heads} heads, but the layer has {heads}")
        return score

    def make_inner_product(self, mechanism: str) -> Score:
        """Return the score as `make_score` does. Raise a RegardError for one of another kind."""
        score = self.make_score()
        if not score.acceleration.inner_product:
            raise RegardError(
                f"attention={mechanism} needs an inner product: use score=scaled-dot, dot or "
                f"cosine and position=none or rotary, not {type(score).__name__}"
            )
        return score

    def make_compress(self) -> Linformer | None:
        """Return the module that compresses keys and values, or None."""
        if isinstance(self.compress, str):
            return named_compress(self.compress, self.length)
        return self.compress

    def make_output(self) -> nn.Linear | None:
        """Return the output projection of the concatenated heads, or None."""
        inner = self.heads * self.each_head
        return nn.Linear(inner, self.width, self.bias) if self.output_projection else None

    def must_name_score(self, mechanism: str, *, classes: bool = True) -> None:
        """Raise a RegardError for a Score that is built already, or without ``classes`` a class."""
        if not isinstance(self.score, str | type if classes else str):
            how = "by name or class" if classes else "by name"
            raise RegardError(
                f"attention={mechanism} takes a score {how}, not built, as T5 builds its scores; "
                "use multi-head or gated"
            )

    def must_not_compress(self, mechanism: str, what: str) -> None:
        """Raise a RegardError for compress, which mixes what the mechanism needs apart."""
        if self.compress != "none":
            raise RegardError(
                f"attention={mechanism} {what}, which compress mixes; remove compress, or use "
                "attention=multi-head"
            )

    def must_share_memory(self, mechanism: str) -> None:
        """Raise a RegardError for values that have an input of their own."""
        if self.value_width not in (None, self.memory_width):
            raise RegardError(f"attention={mechanism} makes keys and values of the same input")


class HeadMechanism(Mechanism):
    """A mechanism that is built from a `HeadSpec`: a subclass writes ``build`` and ``forward``.

    The arguments are the fields of the spec. A subclass with settings of its own names these in its
    constructor, and passes the others on. With ``takes_values`` its forward takes ``first_values``
    and gives its values to `mixed`, so that it may have stages that mix values.
    """

    takes_values: ClassVar[bool] = False

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        score: str | type[Score] | Score = "scaled-dot",
        position: str = "none",
        normalize: str | Normalizer = "softmax",
        dropout: float = 0.0,
        key_width: int | None = None,
        value_width: int | None = None,
        key_value_heads: int | None = None,
        head_width: int | None = None,
        bias: bool = True,
        output_projection: bool = True,
        length: int | None = None,
        compress: str | Linformer = "none",
        stages: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        spec = HeadSpec(
            width,
            heads,
            score,
            position,
            normalize,
            dropout,
            key_width,
            value_width,
            key_value_heads,
            head_width,
            bias,
            output_projection,
            length,
            compress,
            stages,
        )
        self.width, self.heads, self.groups = width, heads, spec.groups
        self.head_width = spec.each_head
        self.stages: dict[str, str] = {}  # names, and of their modules
        self.build(spec)
        for name in spec.stages:
            self.add_stage(name, spec)

    def add_stage(self, name: str, spec: HeadSpec, module: str = "") -> None:
        """Add an output stage. Raises: an unknown name; a stage that is there already."""
        kind, _ = STAGES.named(name)
        if name in self.stages:
            raise RegardError(f"the output stage {name} is there already; name it once")
        if kind.mixes_values and not self.takes_values:
            raise RegardError(
                f"attention={self.name} has no values of its own for the stage {name} to mix; "
                f"leave out +{name}"
            )
        self.stages[name] = module or f"stage-{name}"
        self.add_module(self.stages[name], kind(spec.width, spec.heads, spec.each_head))

    def stage_modules(self) -> list[OutputStage]:
        """Return the output stages."""
        return [getattr(self, name) for name in self.stages.values()]

    @property
    def mixes_values(self) -> bool:
        """Whether the values are mixed with those of the first layer, ``first_values``."""
        return any(stage.mixes_values for stage in self.stage_modules())

    def mixed(self, values: Tensor, first: FirstValues | None) -> Tensor:
        """Return the values (*batch, m, columns) after the stages that mix them."""
        for stage in self.stage_modules():
            if stage.mixes_values:
                values = stage.mixed(values, first or FirstValues())
        return values

    def staged(
        self, output: Tensor, queries: Tensor, own: Tensor | None, *, values: bool | None = None
    ) -> Tensor:
        """Return the heads' outputs after the output stages; ``values``: only those of one kind."""
        both = (True, False) if values is None else (values,)
        for kind in both:
            for stage in self.stage_modules():
                if stage.reads_values == kind:
                    output = stage(output, queries, own)
        return output

    def build(self, spec: HeadSpec) -> None:
        """Create the modules and parameters. Their order determines their random numbers."""
        raise NotImplementedError(f"{type(self).__name__} has no build(spec)")

    def reset(self) -> None:
        """Initialise the projections (Glorot and Bengio 2010) and set their biases to zero.

        Of the output projection only the bias changes; a gate stays as it is.
        """
        for name, linear in self.named_children():
            if isinstance(linear, nn.Linear) and (name == "output" or name.startswith("project")):
                if name != "output":
                    nn.init.xavier_uniform_(linear.weight)
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)
