"""Attribution: completeness, and the gradient of the weights against one by autograd."""

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.analysis.attribution import (
    Explainable,
    Scalar,
    agreement,
    attention_gradients,
    attributed,
    in_words,
    integrated_gradients,
)
from regard.core.errors import RegardError
from regard.nn.models.settings import TextClassifierSettings
from regard.nn.models.text_classifier import TextClassifier

TOKENS = torch.tensor([[4, 5, 6, 7, 8]])


def model_and_scalar(**settings: object) -> tuple[TextClassifier, Scalar]:
    torch.manual_seed(1)
    made = TextClassifierSettings.model_validate(
        {"width": 8, "heads": 2, "layers": 2, "init_std": 1.0, **settings}
    )
    model = TextClassifier(made, vocabulary=12, labels=3).eval()

    def forward(copies: int) -> Tensor:
        output: Tensor = model(TOKENS.expand(copies, -1), torch.full((copies,), 5))
        return 100 * output[:, 1]

    return model, Scalar("100 logits", forward, [model.embedding], [list("abcde")])


@pytest.mark.parametrize(("steps", "within"), [(32, 0.05), (512, 0.003)])
def test_integrated_gradients_sum_to_the_difference(steps: int, within: float) -> None:
    """The gradient jumps at the kinks of ReLU, so that the sum converges slowly with steps."""
    scalar = model_and_scalar()[1]
    result = integrated_gradients(scalar, steps)
    assert result.values.shape == (5,)
    assert result.output == pytest.approx(scalar.forward(1).item(), abs=1e-3)
    difference = result.output - result.baseline
    assert abs(difference) > 0.5
    assert result.values.sum() == pytest.approx(difference, rel=within)


def test_no_steps_are_refused() -> None:
    scalar = model_and_scalar()[1]
    with pytest.raises(RegardError, match="at least 1 step, not 0"):
        integrated_gradients(scalar, 0)


def test_batches_of_copies_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scalar = model_and_scalar()[1]
    whole = integrated_gradients(scalar, 9)
    monkeypatch.setattr("regard.analysis.attribution.AT_ONCE", 15)  # 3 copies
    several = integrated_gradients(scalar, 9)
    np.testing.assert_allclose(several.values, whole.values, rtol=1e-4, atol=1e-4)
    assert several.output == pytest.approx(whole.output, rel=1e-4)
    assert several.baseline == pytest.approx(whole.baseline, rel=1e-4)


def test_tokens_that_have_no_name_and_choices_that_do_not_exist_are_refused() -> None:
    model, scalar = model_and_scalar()
    wrong = scalar._replace(texts=[list("abcd")])
    with pytest.raises(RegardError, match=r"embeds \[5\] tokens where the text has \[4\]"):
        integrated_gradients(wrong, 4)
    with pytest.raises(RegardError, match="choice 1: this answer has choices 0 to 0"):
        attributed(model, Explainable([scalar]), 1)


@pytest.mark.parametrize("groups", [0, 1])
def test_attention_times_gradient_is_that_of_a_scaled_value(groups: int) -> None:
    """Scaling key j's value in one layer by 1 + ε moves f by ε Σ A_ij ∂f / ∂A_ij."""
    model, scalar = model_and_scalar(key_value_heads=groups)
    rows = attention_gradients(model, scalar)
    name, found = next(row for row in rows if row[0].startswith("blocks.1"))
    layer, moved = model.get_submodule(name), []
    for key in range(5):
        for step in (0.05, -0.05):

            def scale(
                _: object, inputs: tuple[Tensor, ...], at: int = key, by: float = step
            ) -> tuple[Tensor, ...]:
                values = inputs[2].clone()
                values[..., at, :] *= 1 + by
                return (*inputs[:2], values, *inputs[3:])

            handle = layer.register_forward_pre_hook(scale)
            with torch.no_grad():
                moved.append(scalar.forward(1).double().item())
            handle.remove()
    wanted = (np.array(moved[::2]) - np.array(moved[1::2])) / 0.1
    assert np.abs(wanted).max() > 3e-2
    np.testing.assert_allclose(found, wanted, atol=2e-3, rtol=2e-2)


def test_agreement_is_spearmans() -> None:
    assert agreement([1, 2, 3, 4, 5], [5, 4, 3, 2, 1]) == -1
    assert agreement([1, 2, 3, 4], [1, 2, 3, 4]) is None
    assert agreement([1, 2, 3, 4, 5], [7, 7, 7, 7, 7]) is None
    says = {in_words(value) for value in (None, 0.8, 0.5, 0.0, -0.5)}
    assert len(says) == 5
