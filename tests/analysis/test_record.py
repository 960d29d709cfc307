"""A recording holds what every layer did; of long texts, in few numbers."""

import torch
from torch.testing import assert_close

from regard.analysis.record import record, table
from regard.attention import MultiHeadAttention
from regard.attention.kernels.summary import Summary


def test_layers_by_name_and_only_the_last_pass():
    model = torch.nn.Sequential(MultiHeadAttention(6, 2), MultiHeadAttention(6, 3))
    with torch.no_grad(), record(model) as recording:
        model(torch.randn(2, 5, 6))
        model(torch.randn(2, 4, 6))
    assert [name for name, _ in recording.layers] == ["0.attention", "1.attention"]
    assert [tuple(table(seen).shape) for _, seen in recording.layers] == [
        (2, 2, 4, 4),
        (2, 3, 4, 4),
    ]


def test_a_long_text_is_summed_up():
    model, x = MultiHeadAttention(6, 2), torch.randn(1, 40, 6)
    with torch.no_grad(), record(model, long=1000, top=3) as recording:
        model(x)
    ((_, summary),) = recording.layers
    assert isinstance(summary, Summary)
    with torch.no_grad(), record(model, long=1600) as recording:
        model(x)
    ((_, whole),) = recording.layers
    assert not isinstance(whole, Summary)
    best = whole.weights.topk(3)
    assert_close(summary.weights, best.values)
    found = table(summary)
    assert_close(found.sum(-1), best.values.sum(-1))
    assert ((found > 0).sum(-1) == 3).all()
