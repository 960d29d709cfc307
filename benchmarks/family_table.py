"""The verdicts of `benchmarks.families` in Markdown."""

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
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
    "not built": "cannot be built or asked here",
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


def table(rows: Sequence["Verdict"], modules: Sequence[str]) -> str:
    """Return the counts, the thirty families, and all families by outcome with their reasons.

    ``modules`` are the classes of transformers that call its attention interface.
    """
    of = {kind: [x for x in rows if x.outcome == kind] for kind in OUTCOMES}
    lines = [f"* {len(of[kind])} {says}." for kind, says in OUTCOMES.items() if of[kind]]
    reached = {module for x in of["agrees"] for module in x.modules}
    lines.append(
        f"* {len(reached & {*modules})} of {len(modules)} classes that call the attention "
        "interface ran and agree."
    )
    lines += ["", *thirty(rows), "", "### Agree", "", ", ".join(x.family for x in of["agrees"])]
    gaps = {key: max((getattr(x, key) or 0.0 for x in of["agrees"]), default=0.0) for key in AIMS}
    lines += ["", "Largest: " + ", ".join(f"{key} {gap:.1e}" for key, gap in gaps.items()) + "."]
    for key, aim in AIMS.items():
        far = [x for x in of["agrees"] if (getattr(x, key) or 0.0) > aim]
        lines += [f"* {key} beyond {aim:g}: {x.family} {getattr(x, key):.1e}" for x in far]
    lines += grouped("Agree, with a remark", (x for x in of["agrees"] if x.reason))
    lines += grouped("Differ", of["differs"])
    lines += grouped("Refused", of["refused"])
    lines += ["", "### Own attention", "", ", ".join(x.family for x in of["own attention"])]
    lines += grouped("Not built or not asked", of["not built"])
    rest = [x for x in modules if x not in reached]
    return "\n".join([*lines, "", "### Classes that did not run", "", ", ".join(rest)])


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


def attention_modules() -> list[str]:
    """Return the classes of transformers' models that call its attention interface, by name."""
    import transformers

    folder = Path(transformers.__file__).parent / "models"
    names = set()
    for path in folder.glob("*/modeling_*.py"):
        text = path.read_text(encoding="utf-8")
        if "ALL_ATTENTION_FUNCTIONS" in text:
            lines = text.splitlines()
            names |= {
                x.name
                for x in ast.parse(text).body
                if isinstance(x, ast.ClassDef)
                and "ALL_ATTENTION_FUNCTIONS" in "".join(lines[x.lineno - 1 : x.end_lineno])
            }
    return sorted(names)
