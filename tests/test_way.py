"""The way of a batch through the package, as docs/architecture.md lists it."""

import re
import traceback
from pathlib import Path

import pytest
import torch.nn.functional as F

import regard
from regard.lab.cli.main import main

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
PACKAGE = Path(regard.__file__).parent


def test_files_from_the_command_to_the_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    product, stacks = F.scaled_dot_product_attention, []

    def record(*arguments, **options):
        stacks.append([Path(frame.filename) for frame in traceback.extract_stack()])
        return product(*arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    rows = [f"{'good' if i % 2 else 'bad'} film number {i},{i % 2}" for i in range(60)]
    (tmp_path / "x.csv").write_text("text,label\n" + "\n".join(rows))
    words = f"train classification --data {tmp_path}/x.csv --out {tmp_path}/run steps=1 width=8"
    words += " heads=2 layers=1 attention_dropout=0 precision=fp32 threads=1"
    monkeypatch.setattr("sys.argv", ["regard", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    # Before the first step, the guard runs the network beside the training loop.
    step = next(stack for stack in stacks if PACKAGE / "training/loop.py" in stack)
    ours = [path for path in step if path.is_relative_to(PACKAGE)]
    way = list(dict.fromkeys(str(path.relative_to(PACKAGE)) for path in ours))
    listed = re.findall(r"^\d+\. `([\w/.]+)`", PAGE.read_text(encoding="utf-8"), re.M)
    assert way == listed


def test_files_that_the_page_names_exist() -> None:
    names = re.findall(r"`((?:\w+/)+\w*)(?:\.py)?`", PAGE.read_text(encoding="utf-8"))
    assert len(names) > 30
    homes = [PACKAGE, PACKAGE.parent, PACKAGE / "attention", PACKAGE / "lab/reports"]
    missing = {
        name
        for name in names
        if not any((home / f"{name}{end}").exists() for home in homes for end in ("", ".py"))
    }
    assert missing == set()
