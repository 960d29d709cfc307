"""The arms of the translation lab and the settings per data set."""

from regard.lab.labs.comparison import ANY_DATA, Preset

GRUS = ("gru", "luong-dot", "luong-general", "luong-concat", "bahdanau")
ARMS = (*GRUS, "transformer")
REFERENCE = "gru"

#: Chosen on validation: a GRU with dropout 0.4, and a small Transformer for 29,000 pairs. All arms
#: read the same batches for the same number of epochs, so that differences are due to the models.
SENTENCES = Preset(
    seeds=1,
    settings={"epochs": 18, "schedule": "linear", "average": 0.998, "batch_tokens": 4096}
    | {"evaluate_every": 440},
    arms={
        **{
            gru: {"width": 192, "hidden": 384, "dropout": 0.4, "learning_rate": 2e-3}
            for gru in GRUS
        },
        "transformer": {"width": 128, "layers": 4, "heads": 4, "feedforward": 256, "dropout": 0.3}
        | {"learning_rate": 0.003, "warmup": 0.1},
    },
)
PRESETS = {
    "dates": Preset(  # eighteen runs in about four minutes on two cores
        task="dates",
        seeds=3,  # the transformer's share differs by 30 points between processors
        settings={
            "locales": "en_US,fr,it,nl",
            "examples": 12_000,
            "steps": 700,  # in 320 steps the transformer learns nothing
            "schedule": "linear",
            "batch_tokens": 1024,
            "learning_rate": 6e-3,
            "warmup": 0.1,
            "dropout": 0.0,
            "evaluate_every": 175,
            "judged": 200,
        },
        arms={
            **{gru: {"width": 32, "hidden": 64, "init_std": 1.0, "tie": 1} for gru in GRUS},
            "transformer": {"width": 64, "layers": 1, "heads": 4, "feedforward": 128}
            | {"position": "rotary", "learning_rate": 4e-3},
        },
    ),
    "multi30k": SENTENCES,
    "eng-fra": SENTENCES,
    ANY_DATA: Preset(seeds=1),
}
NEXT = {
    "dates": "regard lab translation steps=1200 --out runs/lab-translation-1200",
    "multi30k": "regard lab translation --data multi30k source_name=en target_name=de",
}
