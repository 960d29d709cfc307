"""Compare ``attn_implementation="regard"`` with eager in every installed family of transformers.

    python -m benchmarks.families --out families.json

Each family is built tiny, with random weights, and run by both: a batch padded on the left and on
the right, forward and gradients, and six words generated with a cache. Each runs in a separate
process with a time limit. The file is written after each family, and the command resumes from it.
A family whose eager attention returns NaN is compared with sdpa.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import attention_modules, family_models
from benchmarks.family_table import table
from regard.core import atomic_io
from regard.core.errors import RegardError, look_up
from regard.interop import attention_interface
from regard.lab.runs.environment import processor

SECONDS = 60.0  # for one family
FAR = 1e9  # where shapes differ, or what is a number and what is not
CLOSE = {"forward": 1e-4, "gradients": 1e-3, "written": 1e-4}  # of the largest number, or of 1


class EagerError(Exception):
    """An error of a family's own eager attention."""


@dataclass
class Verdict:
    """The outcome of a family; differences are relative to the largest number, or to 1."""

    family: str
    outcome: str  # one of family_table.OUTCOMES
    model: str = ""
    reason: str = ""
    forward: float | None = None
    gradients: float | None = None
    written: float | None = None
    same_words: bool | None = None
    #: Attention modules that regard computed.
    modules: list[str] = field(default_factory=list)
    seconds: float = 0.0


def judge(family: str) -> Verdict:
    """Build a family and compare."""
    try:
        model: Any = family_models.make(family)
    except Exception as error:
        return Verdict(family, "not built", reason=family_models.short(error))
    verdict = Verdict(family, "agrees", type(model).__name__)
    attention_interface.register()
    reached = modules_reached(attention_interface)
    try:
        compare(model, verdict)
    except RegardError as error:
        verdict.outcome, verdict.reason = "refused", str(error)
        return verdict
    except EagerError as error:
        verdict.outcome, verdict.reason = "not built", str(error)
        return verdict
    found = {key: getattr(verdict, key) for key in CLOSE}
    wrong = [key for key, gap in found.items() if gap is not None and not gap <= CLOSE[key]]
    if verdict.same_words is False:
        wrong.append("words")
    verdict.modules = sorted(reached)
    if not reached:
        verdict.outcome, verdict.reason = "own attention", ""
    elif wrong:
        verdict.outcome, verdict.reason = "differs", ", ".join(wrong)
    return verdict


def modules_reached(interface: Any) -> set[str]:
    """Return a set that collects the names of module classes whose attention regard computes."""
    reached: set[str] = set()
    own: Callable[..., Any] = interface.refuse_difference

    def refuse_difference(module: nn.Module, *given: Any) -> None:
        own(module, *given)
        reached.add(type(module).__name__)

    interface.refuse_difference = refuse_difference
    return reached


def compare(model: Any, verdict: Verdict) -> None:
    """Fill in the differences that the family supports."""
    asked = family_models.question(model)
    sides = ("left", "right") if "attention_mask" in asked else ("",)
    model.reference = "eager"
    if not all(bool(x.isfinite().all()) for x in by_eager(model, asked).values()):
        model.reference, verdict.reason = "sdpa", "compared with sdpa: eager returns NaN"
    verdict.forward = max(forward_gap(model, family_models.question(model, side)) for side in sides)
    with contextlib.suppress(EagerError):
        verdict.gradients = gradient_gap(model, family_models.question(model, sides[-1]))
    if model.can_generate() and ("input_ids" in asked or "input_features" in asked):
        side = "right" if model.config.is_encoder_decoder else "left"
        with contextlib.suppress(EagerError):
            asked = family_models.question(model, side)
            verdict.written, verdict.same_words = written_gap(model, asked)


def by_eager(model: Any, asked: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the model's eager output at positions that are not padding."""
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return read(family_models.answer(model, asked), asked)
    except Exception as error:
        raise EagerError(family_models.short(error)) from None


def by_each(model: Any, what: Callable[[], Any]) -> tuple[Any, Any]:
    """Return the result of a function with eager (or the reference attention) and with regard."""
    found = []
    for name in (model.reference, "regard"):
        model.set_attn_implementation(name)
        torch.manual_seed(2)
        try:
            found.append(what())
        except Exception as error:
            if name != "regard":
                raise EagerError(family_models.short(error)) from None
            raise
    return found[0], found[1]


def read(said: dict[str, Tensor], asked: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return an output without its padding."""
    mask = asked.get("attention_mask")
    if mask is None:
        return said
    return {key: x[mask.bool()] if x.shape[:2] == mask.shape else x for key, x in said.items()}


def forward_gap(model: Any, asked: dict[str, Tensor]) -> float:
    """Return the largest difference of the outputs."""
    with torch.no_grad():
        one, two = by_each(model, lambda: read(family_models.answer(model, asked), asked))
    return max(gap(x, two[key]) for key, x in one.items())


def gradient_gap(model: nn.Module, asked: dict[str, Tensor]) -> float | None:
    """Return the largest difference of a gradient, relative to the largest gradient."""

    def gradients() -> dict[str, Tensor]:
        model.zero_grad()
        said = read(family_models.answer(model, asked), asked)
        chance = torch.Generator().manual_seed(3)
        parts = [(x * torch.randn(x.shape, generator=chance)).mean() for x in said.values()]
        torch.stack(parts).sum().backward()
        return {
            name: x.grad.clone()
            for name, x in model.named_parameters()
            if x.grad is not None and x.numel()
        }

    one, two = by_each(model, gradients)
    most = max((float(x.abs().max()) for x in one.values()), default=0.0)
    if not most or one.keys() != two.keys():
        return None if not most else FAR
    return max(float((x - two[name]).abs().max()) / most for name, x in one.items())


def written_gap(model: Any, asked: dict[str, Tensor]) -> tuple[float, bool]:
    """Return the largest difference of six generated words' logits, and whether the words agree."""
    given = {key: x for key, x in asked.items() if not key.startswith("decoder")}
    how = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "num_beams": 1,
           "output_logits": True, "return_dict_in_generate": True, "use_cache": True,
           "pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1}  # fmt: skip

    def write() -> tuple[Tensor, Tensor]:
        written = model.generate(**given, **how)
        return torch.stack(written.logits), written.sequences

    (one, words), (two, others) = by_each(model, write)
    return gap(one, two), torch.equal(words, others)


def gap(one: Tensor, two: Tensor) -> float:
    """Return max |one − two|, relative to the largest number in one, or to 1 if that is more."""
    if one.shape != two.shape:
        return FAR
    if not one.numel():
        return 0.0
    kept = one.isfinite() & (one.abs() < torch.finfo(one.dtype).max / 2)
    if not bool((kept == (two.isfinite() & (two.abs() < torch.finfo(two.dtype).max / 2))).all()):
        return FAR
    most = max(1.0, float(one[kept].abs().max())) if bool(kept.any()) else 1.0
    return float((one - two)[kept].abs().max()) / most if bool(kept.any()) else 0.0


def alone(family: str, seconds: float) -> Verdict:
    """Test a family in a separate process with a time limit."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    begun = time.monotonic()
    process = context.Process(target=answer, args=(family, there), daemon=True)
    process.start()
    there.close()
    verdict = Verdict(family, "not built", reason=f"not finished after {seconds:g} seconds")
    try:
        if here.poll(seconds):
            verdict = here.recv()
    except EOFError:
        verdict.reason = "its process ended"
    process.kill()
    process.join()
    verdict.seconds = round(time.monotonic() - begun, 1)
    return verdict


def answer(family: str, to: Connection) -> None:
    """Run in the process of one family."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    torch.set_num_threads(1)
    try:
        verdict = judge(family)
    except BaseException as error:
        verdict = Verdict(family, "differs", reason=family_models.short(error))
    to.send(verdict)


def judged(names: Sequence[str], out: Path, seconds: float) -> Iterator[Verdict]:
    """Yield the verdict of every family; verdicts in the file are reused."""
    rows = json.loads(out.read_text())["families"] if out.exists() else []
    done = {row["family"]: Verdict(**row) for row in rows}
    for name in names:
        if name not in done:
            done[name] = alone(name, seconds)
            atomic_io.write_json(
                out, {**versions(), "families": [asdict(x) for x in done.values()]}
            )
        yield done[name]


def preload() -> None:
    """Import the packages that every family needs, once for all processes."""
    from transformers import BertConfig, BertModel

    family_models.families()
    attention_interface.register()
    BertModel(BertConfig(hidden_size=4, num_attention_heads=1, num_hidden_layers=1, vocab_size=9))


def versions() -> dict[str, str]:
    """Return the compared versions."""
    import transformers

    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "processor": processor(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each family, then the table; exit code 1 if something differs.

    Raises: a family that does not exist.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="write the verdicts there as JSON")
    parser.add_argument("--only", nargs="+", help="some of the families")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one family")
    asked = parser.parse_args(arguments)
    preload()
    names = family_models.families()
    if asked.only:
        there = dict.fromkeys(names, "")
        names = [name for name in asked.only if look_up(there, name, "family") == ""]
    rows = []
    for verdict in judged(names, asked.out, asked.seconds):
        rows.append(verdict)
        sys.stderr.write(f"{verdict.family:32} {verdict.outcome:14} {verdict.reason}\n")
    sys.stdout.write(table(rows, attention_modules.attention_modules()) + "\n")
    return int(any(x.outcome == "differs" for x in rows))


if __name__ == "__main__":
    raise SystemExit(main())
