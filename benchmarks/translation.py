"""Translation by regard's Transformer, a plain torch loop, Marian, JoeyNMT and CTranslate2.

All have the same sizes, subwords and sentences. ``training``: seconds per 1,000 real tokens of
both sides (without padding), each with its own batches and loss.
``decoding``: seconds per sentence of a beam of 5 with all texts forced to 30 tokens; Hugging
Face and CTranslate2 use regard's weights. Sides take turns in one run, and each row
names its precisions. JoeyNMT has a separate environment: ``joey=PATH`` of its Python.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks import translation_peers as peers
from benchmarks.case import Aim
from benchmarks.joey import Joey
from benchmarks.text_training import must_have_trained, tokens_of, turn
from regard.analysis.timing import seconds
from regard.core.errors import RegardError
from regard.core.memory import keep_freed_memory
from regard.core.settings import Settings, build, split
from regard.decoding import Limits, beam, side_by_side
from regard.lab.tasks import TASKS
from regard.lab.tasks.settings import SequencesSettings
from regard.lab.tasks.writing.task import Sequences
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.transformer import Transformer
from regard.training.batches import pad
from regard.training.loop import TrainingSettings, train
from regard.training.precision import Precision, choose_device, choose_precision

NEVER = 1 << 30
BEAM = 5
SIDES = ("ours", "theirs")


class TranslationSettings(Settings):
    """``case``: training or decoding (both by default); ``against``: peers whose name contains it.

    Training: ``rounds`` turns each of ``round_tokens`` real tokens; peers without batches of their
    own take ``peer_batch`` random pairs. Decoding: ``rounds`` turns; regard and CTranslate2 write
    ``batches`` batches of ``sentences``, the slower ones one, each text ``forced`` tokens long.
    """

    case: Literal["", "training", "decoding"] = ""
    against: str = ""
    joey: str = ""
    rounds: int = 5
    round_tokens: int = 8_000
    peer_batch: int = 64
    batches: int = 4
    sentences: int = 64
    forced: int = 30


@dataclass(frozen=True)
class Contest:
    """One task, one set of sizes, one training."""

    task: Sequences
    sizes: TransformerSettings
    training: TrainingSettings
    how: TranslationSettings

    @property
    def precision(self) -> Precision:
        """Return regard's precision."""
        return choose_precision(self.training.precision, self.training.device)

    def model(self) -> Transformer:
        """Return regard's model with initial weights."""
        torch.manual_seed(self.training.seed)
        words = self.task.end + 1
        return Transformer(self.sizes, words, words)

    def ours(self) -> Iterator[int]:
        """Return the real tokens of each step of regard's training, endlessly."""
        return tokens_of(train(self.model(), self.task, self.training))

    def says(self) -> str:
        """Describe the sizes."""
        sizes = self.sizes
        return (
            f"{sizes.layers} + {sizes.decoder_layers or sizes.layers} layers, width {sizes.width}, "
            f"{self.task.end + 1:,} words, {self.task.corpus.name}"
        )


@dataclass(frozen=True)
class Rival:
    """A peer, the precision it computes in, and regard's aim; a row of the table."""

    name: str
    aim: Aim | None
    make: Callable[[], Any]
    missing: str = ""


def cases(*, quick: bool = False, settings: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Return a row for each peer; ``quick`` takes few turns, and aims are then not checked.

    ``settings``: key=value of the task (data, vocabulary, …), of the Transformer (width, layers,
    heads, …), of the training (precision, batch_tokens, …) and of `TranslationSettings`.
    """
    entry = TASKS["translation"]
    data, network, training, bench = split(
        settings, SequencesSettings, TransformerSettings, TrainingSettings, TranslationSettings
    )
    few = {"rounds": 1, "round_tokens": 2_000, "batches": 2} if quick else {}
    languages = {"source_name": "de", "target_name": "en"} if "data" not in data else {}
    asked = entry.configure({**languages, **data})
    assert isinstance(asked, SequencesSettings)
    contest = Contest(
        Sequences(asked),
        build(TransformerSettings, {"layers": 4, **network}),
        build(TrainingSettings, {"epochs": 1000, "evaluate_every": NEVER, **training}),
        build(TranslationSettings, {**few, **bench}),
    )
    if contest.training.device == "cuda" and contest.how.case != "training":
        raise RegardError("on a GPU only training has peers; give case=training")
    choose_device(contest.training.device)  # an error if it is not there
    keep_freed_memory()
    return rows(contest, judged=not quick)


def rows(contest: Contest, *, judged: bool) -> Iterator[dict[str, Any]]:
    """Measure the selected rows. Raises: an unknown peer."""
    tables = {"training": training_rivals, "decoding": decoding_rivals}
    how = contest.how
    asked = {name: make(contest) for name, make in tables.items() if how.case in ("", name)}
    chosen = [
        (name, rival)
        for name, rivals in asked.items()
        for rival in rivals
        if how.against.lower() in rival.name.lower()
    ]
    if not chosen:
        known = "; ".join(rival.name for rivals in asked.values() for rival in rivals)
        raise RegardError(f"no peer is called {how.against!r}; there are: {known}")
    for name, rival in chosen:
        row = blank(contest, name, rival)
        if not rival.missing:
            row |= (train_both if name == "training" else write_both)(contest, rival)
            row["time_ratio"] = row["ratios"][len(row["ratios"]) // 2]
            if judged and rival.aim is not None:
                row["reached"] = rival.aim.reached(row)
        yield row


def blank(contest: Contest, case: str, rival: Rival) -> dict[str, Any]:
    """Return a row before its measurement."""
    unit = (
        "per 1,000 real tokens"
        if case == "training"
        else f"beam {BEAM}, {contest.how.forced} tokens forced; per sentence"
    )
    return {
        "name": f"{case} in {contest.precision.name}, {contest.says()}; {unit}",
        "against": rival.name + (f" ({rival.missing})" if rival.missing else ""),
        **dict.fromkeys(("ours_s", "theirs_s", "time_ratio", "ours_mb", "theirs_mb")),
        "aim": rival.aim.says if rival.aim else "",
        "reached": None,
    }


def training_rivals(contest: Contest) -> list[Rival]:
    """Return the peers of training."""
    task, sizes, size = contest.task, contest.sizes, contest.how.peer_batch
    seed, words = contest.training.seed, contest.task.end + 1
    hf = peers.missing("transformers")

    def loop(make: Callable[..., nn.Module], bf16: bool = False) -> Callable[[], Iterator[int]]:
        device = contest.training.device
        return lambda: peers.train_plainly(
            make(sizes, words).to(device), task, size, seed, bf16=bf16
        )

    return [
        Rival(f"nn.Transformer, fp32, random batches of {size}", Aim(4), loop(peers.Tutorial)),
        Rival("Hugging Face Marian, fp32", Aim(2.5), loop(peers.Marian), hf),
        Rival("Hugging Face Marian, bf16 autocast", None, loop(peers.Marian, True), hf),
        Rival(
            "JoeyNMT, fp32",
            Aim(5),
            lambda: joey(contest),
            "runs on the CPU"
            if contest.training.device == "cuda"
            else Joey.lacks(contest.how.joey),
        ),
    ]


def decoding_rivals(contest: Contest) -> list[Rival]:
    """Return the peers of decoding; all but JoeyNMT have regard's weights."""
    forced, sizes = contest.how.forced, contest.sizes
    hf, ct2 = peers.missing("transformers"), peers.missing("ctranslate2")

    def generate(dtype: torch.dtype) -> Callable[[], Any]:
        return lambda: peers.Generating(spread(contest.model()), sizes, forced, dtype)

    def ctranslate2(kind: str) -> Callable[[], Any]:
        return lambda: peers.CTranslate2(spread(contest.model()), sizes, forced, kind)

    workers = "2 workers of 1 thread"
    return [
        Rival("Hugging Face generate, same weights, fp32", Aim(3), generate(torch.float32), hf),
        Rival("Hugging Face generate, same weights, bf16", None, generate(torch.bfloat16), hf),
        Rival(f"CTranslate2, same weights, fp32, {workers}", Aim(1), ctranslate2("float32"), ct2),
        Rival(f"CTranslate2, same weights, int8, {workers}", None, ctranslate2("int8"), ct2),
        Rival("JoeyNMT, fp32", Aim(8), lambda: joey(contest), Joey.lacks(contest.how.joey)),
    ]


def joey(contest: Contest) -> Joey:
    """Return JoeyNMT at the same sizes, in its own process."""
    return Joey(contest.how.joey, contest.sizes, contest.task, contest.how.forced)


def spread(model: Transformer) -> Transformer:
    """Return the model with nonzero weights: a stack that is the identity writes one word."""
    with torch.no_grad():
        for x in model.parameters():
            x.add_(torch.randn_like(x), alpha=0.02)
    return model.eval()


def train_both(contest: Contest, rival: Rival) -> dict[str, Any]:
    """Return seconds per 1,000 real tokens, in turns."""
    with ExitStack() as stack:
        ours, made = contest.ours(), rival.make()
        theirs = stack.enter_context(made).training() if isinstance(made, Joey) else made
        for side in (ours, theirs):
            next(side)  # the first step allocates
        enough = contest.how.round_tokens
        device = contest.training.device
        turns = [
            (turn(ours, enough, device), turn(theirs, enough, device))
            for _ in range(contest.how.rounds)
        ]
    found = compared(turns, 1000)
    must_have_trained(contest.model(), min(found["ours_s"], found["theirs_s"]), device)
    return found | {f"{side}_tokens_per_s": 1000 / found[f"{side}_s"] for side in SIDES}


def write_both(contest: Contest, rival: Rival) -> dict[str, Any]:
    """Return seconds per sentence, in turns; slow peers write one batch per turn."""
    how, sources = contest.how, contest.task.split("test").source
    order = np.argsort([-len(ids) for ids in sources], kind="stable")
    count = how.sentences * how.batches
    middle = [sources[i] for i in order[max(0, (len(order) - count) // 2) :][:count]]
    batches = [middle[i : i + how.sentences] for i in range(0, len(middle), how.sentences)]
    model, threads = spread(contest.model()), torch.get_num_threads()
    with ExitStack() as stack:
        peer = rival.make()
        if hasattr(peer, "__enter__"):
            stack.enter_context(peer)
        torch.set_num_threads(threads)  # CTranslate2 sets torch's too
        many = batches if getattr(peer, "quick", False) else batches[len(batches) // 2 :][:1]
        write(model, contest, batches[:1])
        peer.write(batches[:1])
        turns = [
            (
                seconds(lambda: write(model, contest, batches)) / sum(map(len, batches)),
                seconds(lambda: peer.write(many)) / sum(map(len, many)),
            )
            for _ in range(how.rounds)
        ]
    found = compared(turns, 1)
    return found | {f"{side}_sentences_per_s": 1 / found[f"{side}_s"] for side in SIDES}


def write(model: Transformer, contest: Contest, batches: Sequence[Any]) -> None:
    """Decode batches in parallel, each by a beam with texts of one length."""
    forced = contest.how.forced
    limits = Limits(ratio=0, more=forced, longest=forced, least=forced)

    def search(batch: Sequence[Any]) -> object:
        source: tuple[Tensor, Tensor] = pad(batch)
        return beam(model, *source, end=contest.task.end, size=BEAM, penalty=0.0, limits=limits)

    with contest.precision.autocast():
        side_by_side(search, batches)


def compared(turns: Sequence[tuple[float, float]], unit: float) -> dict[str, Any]:
    """Return the medians of both sides, and the ratios of the turns in order."""
    ours, theirs = (unit * median(side) for side in zip(*turns, strict=True))
    ratios = sorted(b / a for a, b in turns)
    return {"ours_s": ours, "theirs_s": theirs, "ratios": ratios}
