"""Why does a Transformer use LayerNorm and not BatchNorm? Four reasons, each measured.

The reasons are those of seed 002: lengths differ; residual networks; words that have roles of
their own; ablations. Shen et al. 2020 (PowerNorm) measure the second and the fourth at full size.
"""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.lab.labs import Say, Show
from regard.lab.labs.lab import Findings, MeasuringLab, ReferenceTime
from regard.lab.labs.normalisation.ablation import ablation
from regard.lab.labs.normalisation.reasons import lengths_differ, mixed, residuals


class NormalisationSettings(Settings):
    """The sizes: `width` of a word, `depth` of the untrained network, `steps` of the ablation.

    `small` and `large`: texts of a batch in the ablation, which reads `steps` · `large` texts at
    either size; `layers`: its blocks; `seeds`: its seeds, from `seed` on.
    """

    width: int = Field(32, ge=4, le=512)
    depth: int = Field(16, ge=4, le=64)
    layers: int = Field(1, ge=1, le=8)
    small: int = Field(8, ge=2)
    large: int = Field(32, ge=2)
    steps: int = Field(300, ge=1)
    seeds: int = Field(3, ge=2, le=20)
    seed: int = Field(0, ge=0, lt=2**40)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.small >= self.large:
            raise RegardError(
                f"small={self.small} must be below large={self.large}: the lab compares both sizes"
            )
        if self.width % 2:
            raise RegardError(f"width={self.width} is odd; two heads need an even width")
        return self


def measure(settings: NormalisationSettings, say: Say, show: Show) -> Findings:
    """Measure the three reasons on vectors, and train for the fourth."""
    show(0, 100, "lengths")
    parts = [lengths_differ(settings.width, settings.seed)]
    show(10, 100, "residuals")
    parts.append(residuals(settings.width, settings.depth, settings.seed))
    parts.append(mixed(settings.width, settings.seed))
    seeds = range(settings.seed, settings.seed + settings.seeds)
    sizes = (settings.small, settings.large)
    parts.append(ablation(sizes, settings.steps, settings.width, settings.layers, seeds, show))
    return Findings.joined(parts)


LAB = MeasuringLab(
    settings=NormalisationSettings,
    reference_time=ReferenceTime(
        78, "one core of an AMD EPYC (processor time)", scales_with=("steps",)
    ),
    measure=measure,
    page=Path(__file__).with_suffix(".md"),
    next="regard lab sentiment",
)
