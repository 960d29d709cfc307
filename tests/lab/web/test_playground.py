"""The playground computes what regard and torch compute: outputs, gradients and steps of Adam."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import MultiHeadAttention
from regard.attention import masks
from regard.attention.positions import input_positions
from regard.lab.reports.page import learn_page
from regard.lab.web.page import modules
from tests.lab.web.conftest import Open, Opened, until

pytestmark = pytest.mark.browser
HOME = "http://playground.invalid"
USUAL = {"score": "scaled-dot", "normalize": "softmax", "mask": "none", "position": "none"}
CONTROLS = {
    "score": (
        "dot", "scaled-dot", "general", "additive", "cosine", "cosine-temperature", "gaussian",
        "epanechnikov/sum", "boxcar/sum",
    ),
    "normalize": (
        "softmax", "softmax-plus-one", "sparsemax", "entmax15", "sigmoid", "sum", "top-k-2",
    ),
    "mask": ("none", "causal", "window-1", "window-2", "others"),
    "position": ("none", "sinusoidal", "learned", "rotary", "alibi"),
    "heads": ("1", "4"),
}  # fmt: skip
MASKS = {
    "none": None, "causal": masks.causal(), "window-1": masks.window(1),
    "window-2": masks.window(2), "others": masks.others(),
}  # fmt: skip
#: Each case: its output, the gradients of Σ output · target, and all after two steps of Adam.
COMPUTE = f"""async (cases) => {{
  const t = await import("{HOME}/tensor.js");
  const l = await import("{HOME}/layers.js");
  const layers = {{
    attention: (p, how) => l.multiHead(l.addPositions(p.x, how, p), p.memory, how, p).output,
    self: (p, how) => {{
      const x = l.addPositions(p.x, how, p);
      return l.multiHead(x, x, how, p).output;
    }},
    gru: (p) => l.gru(p.x, p.state, p),
    norm: (p) => t.layerNorm(p.x, p.weight, p.bias),
    embedding: (p, how) => t.take(p.weight, how.ids, [how.ids.length]),
    entropy: (p, how) => t.crossEntropy(p.x, how.ids),
  }};
  return cases.map(({{ layer, how, parameters, target }}) => {{
    const p = {{}};
    for (const name in parameters) p[name] = new t.Tensor(...parameters[name]);
    const adam = new t.Adam(Object.values(p), 0.01);
    const found = {{}};
    for (let step = 0; step < 2; step++) {{
      const output = layers[layer](p, how);
      found[`output ${{step}}`] = [...output.data];
      t.backward(t.mean(t.multiply(output, new t.Tensor(output.shape, target))));
      for (const name in p) found[`gradient ${{step}} of ${{name}}`] = [...p[name].slope()];
      adam.step();
      for (const name in p) found[`step ${{step}} of ${{name}}`] = [...p[name].data];
    }}
    return found;
  }});
}}"""


@dataclass(frozen=True)
class Case:
    """A layer with random parameters, and what Python computes for it."""

    layer: str
    how: Mapping[str, Any]
    parameters: Mapping[str, Tensor]
    compute: Callable[[], Tensor]

    def expected(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return the case for the page, and the numbers that the page must find."""
        target = torch.randn_like(self.compute())
        sent = {
            "layer": self.layer, "how": self.how, "target": target.flatten().tolist(),
            "parameters": {
                name: (list(x.shape), x.flatten().tolist()) for name, x in self.parameters.items()
            },
        }  # fmt: skip
        found = {}
        adam = torch.optim.Adam(self.parameters.values(), lr=0.01)
        for step in range(2):
            output = self.compute()
            found[f"output {step}"] = output.detach().clone()
            adam.zero_grad(set_to_none=False)
            (output * target).mean().backward()
            for name, x in self.parameters.items():
                found[f"gradient {step} of {name}"] = torch.zeros_like(x) + (
                    0 if x.grad is None else x.grad
                )
            adam.step()
            for name, x in self.parameters.items():
                found[f"step {step} of {name}"] = x.detach().clone()
        return sent, found


def attention(seed: int, **changes: Any) -> Case:
    """Attention over 2 texts; without `self`, of 3 queries over 5 other vectors."""
    torch.manual_seed(seed)
    how = {**USUAL, "heads": "2", **changes}
    score, _, normalize = how["score"].partition("/")
    how |= {"score": score, "normalize": normalize or how["normalize"], "heads": int(how["heads"])}
    kind = how.pop("layer", "self")
    added = input_positions(how["position"], 12, length=6)
    inside = "none" if added is not None else how["position"]
    layer = MultiHeadAttention(
        12, how["heads"], score=score, position=inside, normalize=how["normalize"]
    ).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(2, 3 if kind == "attention" else 5, 12).double().requires_grad_()
    parameters = {**dict(layer.named_parameters()), "x": x}
    mask = MASKS[how["mask"]]
    if lengths := how.get("lengths"):
        mask = masks.lengths(lengths) if mask is None else mask & masks.lengths(lengths)
    if added is not None:
        parameters |= dict(added.double().named_parameters())
    memory = None
    if kind == "attention":
        memory = parameters["memory"] = torch.randn(2, 5, 12).double().requires_grad_()

    def compute() -> Tensor:
        output: Tensor = layer(x if added is None else added(x), memory, mask)
        return output

    return Case(kind, how, parameters, compute)


def others(name: str) -> Case:
    """A GRU cell, layer normalisation, an embedding, or cross entropy."""
    torch.manual_seed(5)
    if name == "gru":
        cell = nn.GRUCell(3, 4).double()
        x, state = torch.randn(2, 3).double(), torch.randn(2, 4).double()
        inputs = {"x": x.requires_grad_(), "state": state.requires_grad_()}
        return Case(name, {}, {**dict(cell.named_parameters()), **inputs}, lambda: cell(x, state))
    if name == "norm":
        norm = nn.LayerNorm(6).double()
        x = torch.randn(2, 3, 6).double().requires_grad_()
        return Case(name, {}, {**dict(norm.named_parameters()), "x": x}, lambda: norm(x))
    ids = [2, 0, 2, 1]
    if name == "embedding":
        table = nn.Embedding(3, 4).double()
        parameters = dict(table.named_parameters())
        return Case(name, {"ids": ids}, parameters, lambda: table(torch.tensor(ids)))
    x = torch.randn(4, 3).double().requires_grad_()
    return Case(
        name, {"ids": ids}, {"x": x},
        lambda: nn.functional.cross_entropy(x, torch.tensor(ids))[None],
    )  # fmt: skip


@pytest.fixture(scope="module")
def compute(browser: Any) -> Iterator[Callable[[list[Case]], list[str]]]:
    """Compare cases with a page, all in one call; return what differs."""
    page = browser.new_page()

    def serve(route: Any) -> None:
        name = route.request.url.rsplit("/", 1)[1]
        kind = "text/javascript" if name else "text/html"
        route.fulfill(body=modules().get(name, b""), content_type=kind)

    page.route(f"{HOME}/*", serve)
    page.goto(f"{HOME}/")

    def differences(cases: list[Case]) -> list[str]:
        pairs = [case.expected() for case in cases]
        answers = page.evaluate(COMPUTE, [sent for sent, _ in pairs])
        assert len(answers) == len(cases)
        return [
            f"{case.layer} {case.how}: {name} differs by {gap:.1e}"
            for case, (_, wanted), found in zip(cases, pairs, answers, strict=True)
            for name, x in wanted.items()
            if not (
                gap := (x.flatten() - torch.tensor(found[name], dtype=torch.float64)).abs().max()
            )
            < 1e-8
        ]

    yield differences
    page.close()


def test_each_control_computes_what_python_computes(
    compute: Callable[[list[Case]], list[str]],
) -> None:
    cases = [
        attention(seed, **{control: value})
        for control, values in CONTROLS.items()
        for seed, value in enumerate(values)
    ]
    cases += [
        attention(7, layer="attention", **changes)
        for changes in ({}, {"mask": "causal"}, {"position": "rotary"}, {"position": "alibi"})
    ]
    cases += [attention(8, lengths=[5, 2]), attention(9, lengths=[0, 3], mask="others")]
    cases += [others(name) for name in ("gru", "norm", "embedding", "entropy")]
    assert compute(cases) == []


@pytest.mark.deep
@pytest.mark.parametrize("control", CONTROLS)
def test_each_control_computes_it_beside_every_other(
    compute: Callable[[list[Case]], list[str]], control: str
) -> None:
    cases = [
        attention(3, **{control: value, other: beside})
        for value in CONTROLS[control]
        for other in CONTROLS
        if other != control
        for beside in CONTROLS[other]
        if not {f"{value}", f"{beside}"} & {"epanechnikov/sum", "boxcar/sum"}
        for seed in range(3)
    ]
    assert compute(cases) == []


TASKS = {
    "regression": [""], "retrieve": [""], "sort": [""], "reverse": ["attention", "recurrent"],
    "ladder": ["+ positions", "CLS"],
}  # fmt: skip


def solved(page: Any, seconds: float) -> None:
    page.click("button:text-is('Train')")
    until(page, lambda: page.inner_text(".status").startswith("Solved after"), seconds)
    assert page.locator("button:text-is('Train')").count() == 1, "it ends"


def test_the_width_of_a_kernel_is_learned_in_the_explorer(opened: Open) -> None:
    page = opened().show("view=learn&lesson=train", ".train-map")
    assert "width 1/w = 1.000" in page.inner_text(".says >> nth=0")
    before = page.get_attribute("[aria-label$='fitted curve'] path", "d")
    solved(page, 20)
    told = page.inner_text(".says >> nth=0")
    assert float(told.rsplit("= ", 1)[1]) < 0.7
    assert page.get_attribute("[aria-label$='fitted curve'] path", "d") != before
    page.click("text=Reset")
    until(page, lambda: "width 1/w = 1.000" in page.inner_text(".says >> nth=0"))
    page.select_option("[aria-label=Score]", "boxcar")
    page.click("text=One step")
    until(page, lambda: page.inner_text(".says >> nth=0").startswith("step 1:"))
    page.click("text=One step")
    until(page, lambda: page.inner_text(".says >> nth=0").startswith("step 2:"))
    assert "width 1/w = 2.000" in page.inner_text(".says >> nth=0"), "a step has no gradient"


def press(page: Any, label: str) -> None:
    """Reach a button by Tab and press Enter."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == label:
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"Tab never reaches {label}")


def test_by_the_keyboard_alone_a_task_is_chosen_and_trained(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "playground.html"
    path.write_text(learn_page(), encoding="utf-8")
    on = Opened(browser, path.as_uri())
    on.page.goto(path.as_uri())
    on.page.wait_for_selector(".train-map")
    while on.page.evaluate("document.activeElement.ariaLabel") != "Task":
        on.page.keyboard.press("Tab")
    on.page.keyboard.press("ArrowDown")
    until(on.page, lambda: on.page.locator(".train-map text").count() == 12)  # six pairs are read
    press(on.page, "Train")
    until(on.page, lambda: on.page.inner_text(".status").startswith("Solved after"), 60)
    press(on.page, "Keep these settings as A")
    press(on.page, "Compare A and B over ten seeds")
    until(on.page, lambda: "1 of 10 seeds" in on.page.inner_text(".says >> nth=1"), 60)
    on.well()


def test_without_a_server_equal_settings_are_no_evidence(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "playground.html"
    path.write_text(learn_page(), encoding="utf-8")
    assert path.stat().st_size <= 250_000
    on = Opened(browser, path.as_uri())
    on.page.context.set_offline(True)
    on.page.goto(path.as_uri())
    on.page.wait_for_selector(".train-map")
    solved(on.page, 20)
    on.page.click("text=Keep these settings as A")
    on.page.click("text=Compare A and B over ten seeds")
    says = ".says >> nth=1"
    until(on.page, lambda: on.page.inner_text(says).startswith("10 of 10 seeds"), 60)
    assert "95 % interval 0.000 to 0.000" in on.page.inner_text(says)
    assert on.page.inner_text(f"{says} >> b") == "No evidence of a difference."
    on.page.select_option("[aria-label=Score]", "boxcar")  # whose width is not learned
    on.page.click("text=Compare A and B over ten seeds")
    until(on.page, lambda: on.page.inner_text(says).startswith("10 of 10 seeds"), 60)
    assert "A (score gaussian, normalize softmax) is better." in on.page.inner_text(says)
    on.well()


def test_what_comes_late_of_another_training_is_left_out(opened: Open) -> None:
    page = opened().show("view=learn&lesson=train&train.task=sort", ".train-map")
    says = ".says >> nth=0"
    for change in (lambda: page.click("text=Reset"),
                   lambda: page.select_option("[aria-label=Task]", "reverse")):  # fmt: skip
        page.click("button:text-is('Train')")
        until(page, lambda: not page.inner_text(says).startswith("step 0"), 20)
        change()
        page.wait_for_timeout(500)
        assert page.inner_text(says).startswith("step 0.")
        assert page.get_attribute("[aria-label^='loss over steps'] path.line", "d") == ""


@pytest.mark.deep
@pytest.mark.parametrize(
    ("task", "network"), [(task, network) for task, all_ in TASKS.items() for network in all_]
)
def test_every_task_is_solved_within_a_minute(opened: Open, task: str, network: str) -> None:
    page = opened().show({"view": "learn", "lesson": "train", "train.task": task}, ".train-map")
    if network:
        page.select_option("[aria-label=Network]", network)
    if network == "CLS":  # one row, so one head of one layer cannot tell the sentences apart
        page.select_option("[aria-label=Heads]", "4")
    solved(page, 60)
