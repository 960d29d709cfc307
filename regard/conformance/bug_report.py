"""Failures of laws as a bug report: versions, a minimal program, expected and got.

The program needs torch and the layer's package alone. It has the smallest text that breaks the law,
and is run once before it is written, so that the report has what it printed.
"""

import contextlib
import importlib.metadata
import inspect
import platform
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from regard.conformance.adapters import Layer
from regard.conformance.adopted import Adopted, of_memory
from regard.conformance.conventions import ADDITIVE, BOTH, HIDDEN, KEYS, LENGTHS, ONES, Form
from regard.conformance.law import Law, Verdict
from regard.core.names import located

SIZES = (1, 2, 3, 5, 9, 17, 33, 65, 130, 300)  # words that are tried
LIMIT = 1e-3  # of a difference, relative to the largest number
SECONDS = 120.0
Call = Callable[..., Tensor]


def padding(call: Call, x: Tensor) -> Tensor:
    """A text with as many words of padding, and alone."""
    longer = torch.cat([x, torch.full_like(x, 1e3)], 1)
    return call(longer, torch.tensor([x.shape[1]]))[:, : x.shape[1]] - call(x)


def large_words(call: Call, x: Tensor) -> Tensor:
    """A text of large words with as many words of padding, and alone."""
    longer = torch.cat([1e6 * x, torch.ones_like(x)], 1)
    return call(longer, torch.tensor([x.shape[1]]))[:, : x.shape[1]] - call(1e6 * x)


def empty_text(call: Call, x: Tensor) -> Tensor:
    """An empty text: its output is finite."""
    return 0 * call(x, torch.tensor([0]))


def sees_nothing(call: Call, x: Tensor) -> Tensor:
    """In an empty text, a hidden word and its change."""
    x = torch.cat([x, x[:, :1]], 1)
    other = torch.cat([-x[:, :1], x[:, 1:]], 1)
    none = torch.tensor([0])
    return call(x, none)[:, 1:] - call(other, none)[:, 1:]


def future(call: Call, x: Tensor) -> Tensor:
    """With a causal mask, a text and one more word."""
    longer = torch.cat([x, -x[:, :1]], 1)
    return call(longer, causal=True)[:, :-1] - call(x, causal=True)


def batches(call: Call, x: Tensor) -> Tensor:
    """A text beside another one, and alone."""
    return call(torch.cat([x, -x]))[:1] - call(x)


def order(call: Call, x: Tensor) -> Tensor:
    """The words in reverse order."""
    return call(x.flip(1)).flip(1) - call(x)


def twice(call: Call, x: Tensor) -> Tensor:
    """The same call again."""
    first = call(x)
    return call(x) - first


def untouched(call: Call, x: Tensor) -> Tensor:
    """The input after a call."""
    before = x.clone()
    call(x)
    return x - before


def gradients(call: Call, x: Tensor) -> Tensor:
    """The gradient of the input beside a finite difference."""
    x, step = x.requires_grad_(), 1e-6
    (slope,) = torch.autograd.grad(call(x).sum(), x)
    with torch.no_grad():
        change = (call(x + step).sum() - call(x - step).sum()) / (2 * step)
    return slope.sum() - change


#: The law that each program shows, and what it expects.
PROGRAMS: dict[str, Callable[[Call, Tensor], Tensor]] = {
    "padding 1e3": padding, "large words": large_words, "empty text": empty_text,
    "sees nothing": sees_nothing, "future": future, "batches": batches, "order": order,
    "twice": twice, "untouched": untouched, "gradients": gradients, "long padding": padding,
    "long prefixes": future, "long order": order,
}  # fmt: skip


def bug_report(
    layer: Adopted, laws: Mapping[str, Law[Layer]], verdicts: Sequence[Verdict], what: str
) -> str:
    """Return every failure as a section in Markdown; ``what`` names the layer on the command line.

    >>> from torch import nn
    >>> from regard.conformance import LAWS, adopt
    >>> layer, verdict = adopt(nn.MultiheadAttention), Verdict("empty text", "fails", "got NaN")
    >>> print(bug_report(layer, LAWS["layer"], [verdict], "").splitlines()[0])
    # MultiheadAttention: got NaN
    """
    failures = [verdict for verdict in verdicts if verdict.outcome == "fails"]
    if not failures:
        return f"{layer.name}: no law fails.\n"
    return "\n".join(section(layer, laws[one.law], one, what) for one in failures)


def section(layer: Adopted, law: Law[Layer], verdict: Verdict, what: str) -> str:
    """Return one failure: expected, got, the program and versions."""
    parts = [
        f"# {layer.name}: {verdict.message}\n",
        f"Expected: {law.description}.\n",
        f"Got: {verdict.message}.\n",
    ]
    text, printed = reproduction(layer, verdict.law, what)
    if text:
        parts += [f"```python\n{text}```\n", f"It prints `{printed}`.\n"]
    else:
        parts.append(f"`regard check {what}` shows it; called as {layer}.\n")
    parts.append(f"Versions: {', '.join(versions(layer))}.\n")
    return "\n".join(parts)


def versions(layer: Adopted) -> list[str]:
    """Return the versions of Python, torch, regard and the layer's package."""
    home = type(layer.build()).__module__.partition(".")[0]
    names = dict.fromkeys(["torch", "regard", home.replace("_", "-")])
    found = [f"Python {platform.python_version()}"]
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:  # a file of the user's
            continue
    return found


def reproduction(layer: Adopted, law: str, what: str) -> tuple[str, str]:
    """Return the smallest program that shows a failure and its output; empty if none does."""
    home, _, name = what.rpartition(":")
    file = located(what)[0] if ".py:" in what else ""
    if law not in PROGRAMS or not home or layer.embeds or layer.function:
        return "", ""
    check = PROGRAMS[law]
    module = f"from {Path(file).stem} import {name}" if file else f"from {home} import {name}"
    for words in SIZES:
        if not breaks(layer, check, words):
            continue
        text = program(layer, check, words, module)
        printed = run(text, Path(file).resolve().parent if file else Path.cwd())
        return (text, printed) if printed else ("", "")
    return "", ""


def breaks(layer: Adopted, check: Callable[[Call, Tensor], Tensor], words: int) -> bool:
    """Return whether a text of so many words breaks the law."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = layer.build().to(layer.dtype).eval()
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        x = torch.randn(1, words, layer.width, dtype=layer.dtype)

    def call(x: Tensor, valid: Tensor | None = None, causal: bool = False) -> Tensor:
        return layer.call(module, x, valid, future=not causal)

    try:
        gap = check(call, x).detach()
    except Exception:  # whatever a user's code raises
        return True
    return bool((~gap.isfinite()).any()) or (gap.numel() > 0 and float(gap.abs().max()) > LIMIT)


def program(
    layer: Adopted, check: Callable[[Call, Tensor], Tensor], words: int, module: str
) -> str:
    """Return the text of a program that prints the largest difference of a check."""
    source = textwrap.dedent(inspect.getsource(check))
    source = source.replace(": Call", "").replace(": Tensor", "").replace(" -> Tensor", "")
    dtype, name = str(layer.dtype), module.rpartition(" ")[2]
    lazy = any(map(is_lazy, layer.make().parameters()))
    masked, needed = masks_in_words(layer), [key for key in layer.fixed if key in layer.forms]
    hides = "valid is not None" in masked or "causal" in masked
    body = (
        f"{module}\n\n\n"
        "def call(x, valid=None, causal=False):\n"
        + (
            "    allowed = torch.ones(len(x), x.shape[1], x.shape[1], dtype=torch.bool)\n"
            "    allowed = allowed.tril() if causal else allowed\n"
            "    if valid is not None:\n"
            "        allowed = allowed & (torch.arange(x.shape[1]) < valid[:, None])[:, None]\n"
            if hides
            else ""
        )
        + f"    masks = {{{', '.join(f'{key!r}: None' for key in needed)}}}\n"
        f"{masked}"
        f"    answer = module({arguments(layer)})\n"
        "    found = [y for y in tree_leaves(answer) if torch.is_floating_point(y)]\n"
        f"    return found[{layer.place}]{'' if layer.batch_first else '.transpose(0, 1)'}\n\n\n"
        f"{source}\n\n"
        f"torch.manual_seed(0)\nmodule = {layer.source or name}.to({dtype}).eval()\n"
        f"x = torch.randn(1, {words}, {layer.width}, dtype={dtype})\n"
        f"{'call(x)  # makes its parameters' + chr(10) if lazy else ''}"
        "for parameter in module.parameters():\n"
        "    torch.nn.init.normal_(parameter, std=0.3)\n"
        f"print({check.__name__}(call, x).abs().max().item())  # 0 expected\n"
    )
    imports = "import torch\nfrom torch.utils._pytree import tree_leaves\n\n"
    return f"{'import math' + chr(10) * 2 if 'math.' in body else ''}{imports}{body}"


def arguments(layer: Adopted) -> str:
    """Return the arguments of a call as Python."""
    x = "x" if layer.batch_first else "x.transpose(0, 1)"
    words = [f"{layer.roles[role]}={x}" for role in ("queries", "keys", "values")
             if role in layer.roles]  # fmt: skip
    words += [f"{key}={value!r}" for key, value in layer.fixed.items() if key not in layer.forms]
    return ", ".join([*words, "**masks"])


def masks_in_words(layer: Adopted) -> str:
    """Return the lines that write the masks of a call."""
    lines = []
    for name, form in layer.forms.items():
        if of_memory(name):
            continue
        when = {KEYS: "valid is not None", BOTH: "causal or valid is not None"}
        lines.append(f"    if {when.get(form.what, 'causal')}:\n"
                     f"        masks[{name!r}] = {in_words(form, layer.heads)}\n")  # fmt: skip
    return "".join(lines)


def in_words(form: Form, heads: int) -> str:
    """Return a form of the table ``allowed`` as Python.

    >>> in_words(Form(HIDDEN, "b m"), 3)
    '~allowed.any(1)'
    """
    table = {
        "b": "allowed.any(1)", "b m": "allowed.any(1)", "b 1 m": "allowed.any(1, keepdim=True)",
        "b 1 1 m": "allowed.any(1)[:, None, None]", "n m": "allowed[0]", "b n m": "allowed",
        "b 1 n m": "allowed[:, None]", "bh n m": f"allowed.repeat_interleave({heads}, 0)",
        "b h n m": f"allowed[:, None].expand(-1, {heads}, -1, -1)",
    }[form.shape]  # fmt: skip
    if form.meaning == ADDITIVE:
        least = "torch.finfo(x.dtype).min" if form.lowest else "-math.inf"
        return f"torch.zeros(()).to(x).where({table}, {least})"
    endings = {ONES: f"{table}.long()", LENGTHS: f"{table}.sum(-1)", HIDDEN: f"~{table}"}
    return endings.get(form.meaning, table)


def run(text: str, folder: Path) -> str:
    """Run a program with a folder's modules and return what it prints; "" if it prints 0."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "bug.py"
        path.write_text(f"import sys\nsys.path.insert(0, {str(folder)!r})\n{text}", "utf-8")
        done = subprocess.run(  # noqa: S603
            [sys.executable, path], capture_output=True, text=True, timeout=SECONDS
        )
    lines = done.stdout.strip().splitlines()
    last = lines[-1] if lines else ""
    with contextlib.suppress(ValueError):  # an error of another kind
        return last if float(last) != 0.0 else ""
    return ""
