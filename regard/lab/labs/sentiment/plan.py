"""The arms of the ladder, the arm each builds on, and the settings per data set."""

from dataclasses import replace
from typing import Literal

from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.lab.labs.comparison import ANY_DATA, Plan, Preset, PretrainFirst, Pretraining, pairs
from regard.lab.runs.pretrain_first import WAYS
from regard.lab.studies.arms import Arm

REFERENCE = "mean"
BLIND = ("mean", "attention-pool", "query-from-mean", "self-attention", "+residual")
LAYERED = (
    "self-attention", "+residual", "+positions", "+residual+positions", "+cls", "transformer"
)  # fmt: skip
ARMS = (*BLIND[:3], *LAYERED, "rnn", "cnn", "tfidf", "nb-svm")
#: Each step and the arm from which it differs in exactly one setting.
BUILT_ON = {
    "attention-pool": "mean",
    "query-from-mean": "attention-pool",
    "self-attention": "mean",
    "+residual": "self-attention",
    "+positions": "self-attention",
    "+residual+positions": "+residual",
    "+cls": "+residual+positions",
}
#: Pairs whose difference is the gain of a residual: question 2 of the exercise.
RESIDUALS = (("+residual", "self-attention"), ("+residual+positions", "+positions"))
SELF_PRETRAINED = "self-pretrained"
TRAIN = "train"  # the value of ``pretrained=`` that trains the run to begin from

FILMS, REVIEWS = "film-sentences", "reviews"
PRESETS = {
    FILMS: Preset(  # small networks: a result within 90 s on two cores
        trained=("mean", "self-attention", "+positions", "transformer", "tfidf"),
        settings={
            "width": 32,
            "length": 32,
            "init_std": 1.0,
            "learning_rate": 6e-3,
            "batch_size": 128,
        },
        arms={
            "self-attention": {"layers": 1},
            "+positions": {"layers": 1},
            "transformer": {"layers": 1, "heads": 2, "feedforward": 64},
        },
    ),
    REVIEWS: Preset(
        typical=4.0,  # of 11 networks, 2.4 to 8
        settings={
            "width": 48,
            "length": 40,
            "init_std": 1.0,
            "dropout": 0.0,  # every word of these short texts matters
            "word_dropout": 0.0,
            "learning_rate": 3e-3,  # small networks, three times as fast
        },
        arms={"transformer": {"feedforward": 96}, "rnn": {"hidden": 32}, "cnn": {"filters": 32}},
    ),
    "imdb": Preset(  # chosen on validation by film
        typical=1.8,
        settings={"length": 500, "truncate": "ends", "vectors": "glove-50", "learning_rate": 3e-3}
        | {"epochs": 3, "evaluate_every": 176},
        arms={
            "transformer": {
                "layers": 1,  # two layers memorize the train split
                "heads": 2,
                "feedforward": 200,
                "pool": "mean",
                "dropout": 0.3,
                "learning_rate": 1e-3,
            },
            "tfidf": {"inverse_penalty": 10.0},
        },
        # 91.8 % of the test, with 2.25 passes over the texts: docs/results/pretraining.md.
        pretraining=Pretraining(
            network={"length": 512, "width": 256, "layers": 3, "heads": 4, "feedforward": 1024}
            | {"position": "rotary", "norm": "pre", "tokenizer": "words", "vocabulary": 20_000},
            before={"tokens": 42_600_000, "batch_tokens": 8192, "share": 0.25, "dropout": 0.0}
            | {"optimizer": "muon", "learning_rate": 3e-3, "weight_decay": 0.1}
            | {"schedule": "cosine", "validation": 0.01, "evaluate_every": 1000},
            after={"epochs": 2, "schedule": "linear", "batch_tokens": 8192}
            | {"learning_rate": 3e-4, "dropout": 0.1},
        ),
    ),
    ANY_DATA: Preset(settings={"length": 256}),
}


class SentimentOptions(Settings):
    """``size=full``: all arms on the generated reviews; by default five small ones on sentences.

    ``layers=3``: depth of the arms with layers; ``layers=1,3,6``: train them at each depth.

    ``pretrained=train``: add an arm that is first pretrained on the data's own texts, which takes
    hours; ``pretrained=RUN``: add it, fine-tuned from that run.
    """

    size: Literal["small", "full"] = "small"
    layers: str = ""
    pretrained: str = ""

    @property
    def depths(self) -> list[int]:
        """The numbers of layers. Raises: not a positive number; a repeated one."""
        parts = [part.strip() for part in self.layers.split(",")] if self.layers else []
        if not all(p.isdigit() and int(p) for p in parts) or len({*parts}) < len(parts):
            raise RegardError(
                f"layers={self.layers}: give a number of layers, or several to compare: "
                "layers=1,3,6"
            )
        return [int(part) for part in parts]


def usual_data(options: SentimentOptions) -> str:
    """Return the data that are used if none are given."""
    return REVIEWS if options.size == "full" or options.layers else FILMS


def adapt(plan: Plan) -> Plan:
    """Set the depth of arms with layers, and add the pretrained arm if the data have one.

    Raises: ``pretrained`` for data without a pretrained arm; invalid ``layers``.
    """
    depths, pretrained = plan.options.depths, plan.options.pretrained
    preset = plan.preset.pretraining
    if pretrained and preset is None:
        raise RegardError(
            f"pretrained={pretrained}: no arm is pretrained on {plan.data}; leave it out"
        )
    about = f"{plan.seeds_each} (baselines once)"
    if len(depths) > 1:
        swept = [with_layers(arm, depth, at(arm.name, depth)) for arm in plan.arms
                 if arm.name in LAYERED for depth in depths]  # fmt: skip
        rungs = [(at(a, depth), at(b, depth)) for a, b in RESIDUALS for depth in depths]
        arms = [*(arm for arm in plan.arms if arm.name == REFERENCE), *swept]
        about = f"{len(arms)} arms on {plan.data}, {about}"
        return replace(plan, arms=arms, ladder=rungs, about=about)
    arms = [with_layers(arm, depths[0], arm.name) if depths and arm.name in LAYERED else arm
            for arm in plan.arms]  # fmt: skip
    names = {arm.name for arm in arms}
    rungs = [(rung, base) for rung, base in BUILT_ON.items() if base != REFERENCE and rung in names]
    first: list[PretrainFirst] = []
    if preset and pretrained:
        train = pretrained == TRAIN
        sizes = plan.sizes() if train else {}
        arms.append(
            Arm(
                SELF_PRETRAINED,
                "bert",
                pairs({**sizes, **plan.without_user_settings(preset.after)}),
            )
        )
        way, own = WAYS["bert"]
        settings = (*pairs(plan.before()), *own)
        folder = "" if train else pretrained
        first = [PretrainFirst(SELF_PRETRAINED, way, "bert", settings, folder, ready=not train)]
    about = f"{len(arms)} arms on {plan.data}, {about}"
    if first and not first[0].ready:
        about += f"\n{SELF_PRETRAINED} is pretrained first, once per seed, which takes hours"
    return replace(plan, arms=arms, ladder=rungs, pretrain_first=first, about=about)


def with_layers(arm: Arm, depth: int, name: str) -> Arm:
    """Return a copy of an arm with a depth and a name."""
    own = [pair for pair in arm.overrides if not pair.startswith("layers=")]
    return Arm(name, arm.model, (*own, f"layers={depth}"))


def at(name: str, depth: int) -> str:
    """Return an arm's name at a depth, short enough for charts."""
    return f"{name} ×{depth}"
