"""The verdicts of `benchmarks.families` in Markdown."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.families import Verdict

#: What becomes of a family, and how it is said of many.
OUTCOMES = {
    "agrees": "agree with eager",
    "differs": "differ from eager",
    "refused": "are refused",
    "own attention": "do not call the attention interface for these inputs, so that no "
    "attn_implementation reaches them",
    "not built": "cannot be built or run here",
}
#: Families of the first table.
THIRTY = (
    "gpt2", "gpt_neox", "opt", "phi", "phi3", "llama", "llama4_text", "mistral", "mixtral", "qwen2",
    "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "gpt_oss", "olmo2", "cohere2", "deepseek_v3",
    "bert", "roberta", "distilbert", "electra", "modernbert", "t5", "bart", "marian", "whisper",
    "wav2vec2", "vit", "clip",
)  # fmt: skip
#: What the thirty should keep.
AIMS = {"forward": 1e-5, "gradients": 1e-4, "written": 1e-5}


def table(rows: Sequence["Verdict"], modules: Mapping[str, str]) -> str:
    """Return the counts, the thirty families, and all families by outcome with their reasons.

    ``modules`` are those of `benchmarks.attention_modules`.
    """
    of = {kind: [x for x in rows if x.outcome == kind] for kind in OUTCOMES}
    lines = [f"* {len(of[kind])} {says}." for kind, says in OUTCOMES.items() if of[kind]]
    reached = {module for x in of["agrees"] for module in x.modules}
    alone = [x for x, reason in modules.items() if x not in reached and not reason]
    rest = {x: reason for x, reason in modules.items() if x not in reached and reason}
    lines.append(
        f"* {len(modules)} classes call the attention interface: {len(reached & {*modules})} ran "
        f"in these families; of {len(alone)} others regard computes what their eager function does."
    )
    lines += [f"* {x}: {reason}." for x, reason in rest.items()]
    lines += ["", *thirty(rows), "", "### Agree", "", ", ".join(x.family for x in of["agrees"])]
    gaps = {key: max((getattr(x, key) or 0.0 for x in of["agrees"]), default=0.0) for key in AIMS}
    lines += ["", "Largest: " + ", ".join(f"{key} {gap:.1e}" for key, gap in gaps.items()) + "."]
    for key, aim in AIMS.items():
        above = [x for x in of["agrees"] if (getattr(x, key) or 0.0) > aim]
        lines += [f"* {key} beyond {aim:g}: {x.family} {getattr(x, key):.1e}" for x in above]
    lines += grouped("Agree, with a remark", (x for x in of["agrees"] if x.reason))
    lines += grouped("Differ", of["differs"])
    lines += grouped("Refused", of["refused"])
    lines += ["", "### Own attention", "", ", ".join(x.family for x in of["own attention"])]
    lines += grouped("Not built or not run", of["not built"])
    lines += ["", "### Classes that ran in no family, whose eager functions agree", ""]
    return "\n".join(wrapped(x) for x in [*lines, ", ".join(alone)])


def wrapped(line: str) -> str:
    """Return a line broken at 120 columns, except in tables."""
    if line.startswith("|"):
        return line
    indent = "  " if line.startswith("* ") else ""
    return textwrap.fill(
        line, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def thirty(rows: Sequence["Verdict"]) -> list[str]:
    """Return the lines of the table of thirty families."""
    found = {x.family: x for x in rows}
    lines = ["| family | class | logits | gradients | generated logits | words |",
             "|---|---|--:|--:|--:|---|"]  # fmt: skip
    for name in THIRTY:
        if name in found:
            x = found[name]
            gaps = ("" if g is None else f"{g:.1e}" for g in (x.forward, x.gradients, x.written))
            words = {True: "same", False: "differ", None: ""}[x.same_words]
            model = x.model if x.outcome == "agrees" else f"{x.model} {x.outcome}: {x.reason}"
            lines.append(f"| {name} | {model} | {' | '.join(gaps)} | {words} |")
    return lines


def grouped(title: str, rows: Iterable["Verdict"]) -> list[str]:
    """Return a line for each reason with the families that have it, the most common first."""
    reasons: dict[str, list[str]] = {}
    for x in rows:
        says = re.sub(r"^RegardError: (\w+: )?", "", x.reason)
        reasons.setdefault(re.sub(r"\d+", "N", says)[:110], []).append(x.family)
    ordered = sorted(reasons.items(), key=lambda x: -len(x[1]))
    lines = [f"* {', '.join(names)}: `{says}`" for says, names in ordered]
    return ["", f"### {title}", "", *lines] if lines else []
