"""Regard beside formulas, torch and full passes; what is apart is found."""

import json

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import parity, plain_loop
from regard.core.errors import RegardError
from regard.lab.cli.main import app


def test_all_aims_are_reached_and_the_command_says_so() -> None:
    found = CliRunner().invoke(app, ["bench", "parity", "--quick"])
    assert found.exit_code == 0, found.output
    assert "45 of 45 aims reached" in found.stdout
    assert "score additive, float64" in found.stdout


def test_what_is_apart_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = lambda *given: plain_loop.dot(*given) * (1 + 1e-9)  # noqa: E731
    monkeypatch.setitem(plain_loop.PAIRS, "dot", wrong)
    monkeypatch.setattr(parity, "strings", lambda count: ["fine"])
    monkeypatch.setattr(parity, "of_torch", lambda kind, dtype: 0.0)
    monkeypatch.setattr(parity, "of_cache", lambda setting, name, dtype: float("inf"))
    found = CliRunner().invoke(app, ["bench", "parity", "--json"])
    assert found.exit_code == 1
    cases = {case["name"]: case for case in json.loads(found.stdout)["cases"]}
    assert 1e-12 < cases["score dot, float64"]["difference"] < 1e-7
    assert not cases["score dot, float64"]["reached"]
    assert cases["score cosine, float64"]["reached"]
    writes_otherwise = cases["cache, position rotary, float32"]
    assert (writes_otherwise["difference"], writes_otherwise["reached"]) == (None, False)


def test_gradients_and_numbers_that_are_none_are_differences() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    both = x * 3, (x * 3).detach() + 1e-3 * (x - x.detach()) + 3 * (x.detach() - x.detach())
    assert parity.furthest(*both, [x], torch.ones(2)) == pytest.approx(2.999)
    assert parity.apart(torch.tensor([float("nan")]), torch.ones(1)) == float("inf")
    assert parity.apart(torch.tensor([11.0]), torch.tensor([10.0])) == pytest.approx(0.1)


def test_a_text_that_does_not_come_back_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parity, "train_tokenizer", lambda kind, texts, **how: parity_words(texts))
    assert parity.of_tokens("bpe", ["a film", "Кино"]) == 1


def parity_words(texts):
    from regard.lab.data.tokenizers import train_tokenizer

    return train_tokenizer("words", [*texts, "a film a film"])


def test_settings_are_refused() -> None:
    with pytest.raises(RegardError, match="parity has no settings, so not 'n=3'"):
        parity.cases(settings=["n=3"])
