"""Bug reports: a program with the smallest text that shows a failure, as it was run."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.conformance import LAWS, adopt, find
from regard.conformance.bug_report import (
    PROGRAMS,
    SIZES,
    breaks,
    bug_report,
    in_words,
    reproduction,
)
from regard.conformance.conventions import SHAPES, Form
from regard.conformance.law import Verdict
from tests.conformance import strangers

BOOK = strangers.__file__


@pytest.mark.parametrize("shape", [*SHAPES, "b"])
@pytest.mark.parametrize("meaning", ["may look", "hidden", "additive", "ones"])
def test_a_mask_in_words_is_the_mask_of_a_call(meaning, shape):
    form = Form("lengths" if shape == "b" else meaning, shape)
    allowed = torch.ones(2, 4, 4, dtype=torch.bool).tril()
    allowed[0, :, 2:] = False
    if shape == "n m":
        allowed[1] = allowed[0]
    x = torch.zeros(2, 4, 3)
    text = in_words(form, 3)
    here = eval(text, {"torch": torch, "math": math, "allowed": allowed, "x": x})
    assert torch.equal(here, form.write(allowed, 3, torch.float32)), text


def test_a_report_has_the_smallest_program_and_what_it_prints(tmp_path):
    what = f"{BOOK}:TimeFirst"
    layer = find(what)
    verdict = Verdict("empty text", "fails", "the output of an empty text: got NaN")
    text = bug_report(layer, LAWS["layer"], [verdict], what)
    assert "# " + what in text
    assert "Expected: an empty text gives finite outputs and does not affect others." in text
    assert "It prints `nan`." in text
    assert "x = torch.randn(1, 1, 12, dtype=torch.float64)" in text, "one word shows it"
    assert "masks['key_padding_mask'] = ~allowed.any(1)" in text.replace('"', "'")
    assert f"torch {torch.__version__}" in text
    program = text.split("```python\n")[1].split("```")[0]
    file = tmp_path / "bug.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, file],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(BOOK).parent)},
    )
    assert done.stdout.strip() == "nan", done.stderr


class LeaksAfter64(strangers.Small):
    """Words after the 64th hear the next one."""

    def forward(self, x):
        late = (torch.arange(x.shape[1]) >= 64)[:, None]
        return super().forward(x) + 0.1 * torch.where(late, x.roll(-1, 1), 0)


def test_the_smallest_text_is_as_long_as_the_fault_needs():
    layer = adopt(LeaksAfter64())
    assert next(n for n in SIZES if breaks(layer, PROGRAMS["long prefixes"], n)) == 65
    assert not any(
        breaks(adopt(strangers.Small), check, 5)
        for check in PROGRAMS.values()
        if check.__name__ in {"padding", "future", "batches", "twice", "untouched"}
    )


def test_what_has_no_program_says_the_command():
    layer = adopt(strangers.Letters)
    verdict = Verdict("twice", "fails", "repeating the call changed the result by 1")
    text = bug_report(layer, LAWS["layer"], [verdict], "mine.py:Letters")
    assert "`regard check mine.py:Letters` shows it" in text
    assert "```" not in text
    assert reproduction(adopt(nn.MultiheadAttention), "twice", "torch.nn:MultiheadAttention") == (
        "",
        "",
    )
    assert bug_report(layer, LAWS["layer"], [], "") == "Letters: no law fails.\n"


def test_lazy_modules_and_instances_have_a_program():
    what = f"{BOOK}:Book"
    text, printed = reproduction(find(what), "sees nothing", what)
    assert "call(x)  # makes its parameters" in text
    assert float(printed) > 0.01


def test_an_instance_is_made_by_its_name(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(Path(BOOK).read_text() + "\n\nmine = Annotated(3, 12)\n")
    text, printed = reproduction(find(f"{file}:mine"), "large words", f"{file}:mine")
    assert "module = mine.to(torch.float64).eval()" in text
    assert float(printed) > 1.0
