"""A run's report: one file that opens offline and shows the weights as they are."""

import re
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.analysis.layer_attention import LayerAttention
from regard.core.errors import RegardError
from regard.lab.reports.markup import tag
from regard.lab.reports.packed import pack, pack_below, with_rollout
from regard.lab.reports.page import LIMIT, bundle, page, static
from regard.lab.reports.run import look, sandboxed, stored, write_run_report
from regard.lab.tasks.pretraining.evaluation import beginning
from tests.lab.reports.conftest import Open
from tests.lab.reports.hostile import HOSTILE


def random_layers(count: int, heads: int, n: int) -> list[LayerAttention]:
    rng = np.random.default_rng(0)
    layers = []
    for i in range(count):
        powers = np.exp(2 * rng.normal(size=(heads, n, n)).astype(np.float32))
        weights = powers / powers.sum(-1, keepdims=True)
        layers.append(
            LayerAttention(f"blocks.{i}.attention", [f"w{j % 97}" for j in range(n)], weights)
        )
    return layers


def test_as_many_weights_as_fit() -> None:
    layers = random_layers(2, 3, 100)
    whole = pack_below(layers, 10_000_000)
    assert [layer["top"] for layer in whole["layers"]] == [0, 0]
    size = sum(len(head) for layer in whole["layers"] for head in layer["packed"])
    some = pack_below(layers, size)
    assert all(0 < layer["top"] <= 32 for layer in some["layers"]), "thumbnails count too"
    with pytest.raises(RegardError, match="exceed 100 bytes"):
        pack_below(layers, 100)


def test_twelve_by_twelve_heads_at_512_fit_into_five_megabytes() -> None:
    found = pack_below(with_rollout(random_layers(2, 12, 512)), LIMIT // 6)
    assert found["layers"][0]["top"] >= 12
    assert pack(random_layers(1, 1, 4))["layers"][0]["thumb"] == [4, 4]


def test_encoder_and_decoder_are_put_together_each_for_itself() -> None:
    rng = np.random.default_rng(0)

    def stack(side: str, n: int) -> list[LayerAttention]:
        tokens = [f"{side} {i}" for i in range(n)]
        return [
            LayerAttention(f"{side}.{i}.attention", tokens, rng.dirichlet(np.ones(n), (2, n)))
            for i in range(3)
        ]

    for written in (4, 5):  # as long as what was read, and not
        read, said = stack("encoder", 4), stack("decoder", written)
        across = LayerAttention("decoder.0.memory_attention", read[0].tokens,
                        rng.dirichlet(np.ones(4), (2, written)), said[0].tokens)  # fmt: skip
        found = with_rollout([*read, across, *said])
        assert [x.layer for x in found[7:]] == ["encoder.rollout", "decoder.rollout"]
        for layers, together in zip((read, said), found[7:], strict=True):
            (alone,) = with_rollout([x._replace(layer="blocks") for x in layers])[3:]
            assert together.tokens == layers[0].tokens
            np.testing.assert_allclose(together.weights, alone.weights, rtol=1e-12)
        rows = pack(found)["layers"][7:]
        assert [row["kind"] for row in rows] == ["rollout", "rollout"]
        names = ["all encoder layers together", "all decoder layers together"]
        assert [row["name"] for row in rows] == names
    assert len(with_rollout([read[0], said[0]])) == 2, "one layer of each is no product"


def test_a_bundle_needs_nothing_else() -> None:
    whole = bundle("stored.js")
    code = re.sub(r"/\*.*?\*/|^\s*//[^\n]*", "", whole, flags=re.DOTALL | re.MULTILINE)
    assert re.findall(r"^\s*(?:import|export)\b", code, re.MULTILINE) == []
    assert "</script" not in whole.lower()
    assert "<!--" not in whole
    for name in ("answer.js", "dom.js", "packed.js", "tokens.js", "heads.js"):
        assert whole.count(f"modules['{name}'] =") == 1


def test_prompts_begin_at_a_word() -> None:
    for text, prompt in (
        ("orge was born in Rome and lived there long", "was born in Rome and"),
        (" was born in Rome", "was born in Rome"),
        ("Maria was", "Maria was"),
        ("'t be - (far) away", "be - (far) away"),
        (", and then", "and then"),
        ("word", "word"),
        ("", ""),
    ):
        assert beginning(text) == prompt
    assert beginning("ria was born in Rome", "[MASK]") == "was born [MASK] Rome"


def test_the_command_to_see_it_again_finds_the_run(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, path = regard.load(trained), tmp_path / "report.html"
    monkeypatch.chdir(trained.parent)
    write_run_report(run, ["a good film"], path)
    assert f"<pre>regard serve {trained.name}</pre>" in path.read_text()
    monkeypatch.chdir(tmp_path)
    write_run_report(run, ["a good film"], path)
    assert f"<pre>regard serve {trained.resolve()}</pre>" in path.read_text()


def test_it_begins_with_what_matters_and_a_test_text_has_its_label(
    trained: Path, tmp_path: Path
) -> None:
    run = regard.load(trained)
    example = run.evaluate().examples[0]
    assert look(run, example.text)["label"] == example.label
    assert "label" not in look(run, "a film of no split")
    html = write_run_report(run, ["a good film"], tmp_path / "report.html").read_text()
    steps = run.metrics()[-1]["step"]
    order = (
        "Test accuracy", f"The training ended after {steps} steps: {run.convergence}",
        "Scores by label", ">Confusion<", "The model: ", ">Training<", 'id="looks"',
    )  # fmt: skip
    assert sorted(order, key=html.index) == list(order)


@pytest.mark.browser
def test_it_shows_the_run_offline(trained: Path, opened: Open, tmp_path: Path) -> None:
    run = regard.load(trained)
    text = "the plot was not bad at all"
    path = write_run_report(run, [text, "a good film"], tmp_path / "report.html")
    assert path.stat().st_size < LIMIT
    shown, requests, complaints = opened(path)
    shown.wait_for_selector(".tokens")
    said = run.predict(text)
    assert shown.inner_text(".bars .best .name") == said.label
    shown.click(".thumb >> nth=1")
    shown.wait_for_selector(".one-head h2:has-text('layer 1, head 2')")
    weights = run.attention(text)[0].weights[1]
    shown.hover(".tokens >> nth=0 >> [data-i='2']")
    best = int(weights[2].argmax())
    tokens = run.tokens(text)
    said = f"{tokens[2]} looks at {tokens[best]} {weights[2, best]:.2f}"[:-1]
    shown.wait_for_selector(f".says:has-text('{said}')")
    shown.select_option("[aria-label=Text]", "1")
    shown.wait_for_selector(".stored-text:has-text('a good film')")
    shown.wait_for_selector(".tokens")
    assert shown.locator(".tokens >> nth=0 >> [data-i]").all_inner_texts() == ["a", "good", "film"]
    assert (requests, complaints) == ([], [])


@pytest.mark.browser
def test_sixty_hostile_texts_run_nowhere(opened: Open, tmp_path: Path) -> None:
    n = len(HOSTILE)
    layers = [LayerAttention("blocks.0.attention", HOSTILE, np.full((2, n, n), 1 / n, np.float32))]
    looks = [
        {"text": text, "answer": {"label": text, "probabilities": {text: 1.0}}, **pack(layers)}
        for text in HOSTILE[:20]
    ]
    whole = page("hostile", [tag("div", id="looks")], stored=stored(HOSTILE[0], looks))
    path = tmp_path / "hostile.html"
    path.write_bytes(whole.encode(errors="replace"))
    framed = tmp_path / "framed.html"
    framed.write_bytes(
        f"<!doctype html><meta charset=utf-8>{sandboxed(path.read_text('utf-8'))}".encode()
    )
    for file in (path, framed):
        shown, _, complaints = opened(file)
        inside = shown.main_frame if file is path else shown.main_frame.child_frames[0]
        inside.wait_for_selector(".tokens")
        assert inside.evaluate("window.broken") is None
        assert shown.evaluate("window.broken") is None
        assert "<script>window.broken=1</script>" in inside.evaluate("document.body.textContent")
        assert complaints == []


def test_every_file_of_the_page_is_in_the_package() -> None:
    for name in ("index.html", "app.js", "explorer.css", "icon.svg", "stored.js"):
        assert static(name)
