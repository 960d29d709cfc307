import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from regard.attention import MultiHeadAttention, lengths
from regard.nn.layers.blocks import Plain, Residual
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.sublayers import EncoderBlock

WIDTH, TIME = 6, 5


class Halve(nn.Module):
    """In attention's place: what a block does around it shows."""

    def forward(self, x: Tensor, mask: object = None, **_: object) -> Tensor:
        return x / 2 + x.mean(1, keepdim=True)


def f(x: Tensor) -> Tensor:
    return x / 2 + x.mean(1, keepdim=True)


def attention(**options: object) -> MultiHeadAttention:
    return MultiHeadAttention(WIDTH, 1, **options)


def pre_norm() -> EncoderBlock:
    return EncoderBlock(WIDTH, attention(), FeedForward(WIDTH, 11), 0.5, "pre")


def test_plain_is_g_of_f() -> None:
    torch.manual_seed(0)
    block = Plain(WIDTH, attention())
    block.attention = Halve()
    x = torch.randn(3, TIME, WIDTH)
    g = block.to_next
    assert_close(block(x, None), torch.relu(f(x) @ g.weight.T + g.bias))


def test_residual_is_g_of_x_plus_f_of_the_normed() -> None:
    torch.manual_seed(1)
    block = Residual(WIDTH, attention())
    block.attention = Halve()
    with torch.no_grad():
        block.norm.weight.uniform_(0.5, 2)
        block.norm.bias.uniform_(-1, 1)
    x = 3 * torch.randn(3, TIME, WIDTH) + 1
    spread = (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()
    normed = spread * block.norm.weight + block.norm.bias
    g = block.to_next
    assert_close(block(x, None), torch.relu((x + f(normed)) @ g.weight.T + g.bias))


def test_pre_norm_adds_attention_then_feedforward() -> None:
    torch.manual_seed(2)
    block = pre_norm().eval()
    block.attention.work = Halve()
    x = torch.randn(3, TIME, WIDTH)
    between = x + f(block.attention.norm(x))
    inner = block.feedforward.work
    thought = F.gelu(block.feedforward.norm(between) @ inner.widen.weight.T + inner.widen.bias)
    expected = between + thought @ inner.narrow.weight.T + inner.narrow.bias
    assert_close(block(x, None), expected)


def test_pre_norm_begins_as_the_identity() -> None:
    torch.manual_seed(3)
    block = pre_norm()
    x = torch.randn(3, TIME, WIDTH)
    assert torch.equal(block(x, lengths(torch.tensor([5, 2, 3]))), x)


def test_pre_norm_drops_in_training_only() -> None:
    torch.manual_seed(3)
    block = pre_norm()
    nn.init.normal_(block.feedforward.work.narrow.weight)
    x, mask = torch.randn(3, TIME, WIDTH), lengths(torch.tensor([5, 2, 3]))
    assert not torch.equal(block(x, mask), block(x, mask))
    block.eval()
    assert torch.equal(block(x, mask), block(x, mask))


def test_feedforward_looks_at_one_position_at_a_time() -> None:
    torch.manual_seed(4)
    layer = FeedForward(WIDTH, 13)
    x = torch.randn(3, TIME, WIDTH)
    assert_close(layer(x)[1, 2], layer(x[1, 2]))


def test_a_whole_seed_layer_literally() -> None:
    """x' = g(x + f(LN x)) with f written out: q, k, v linear in LN x, one head, 1/√d."""
    torch.manual_seed(5)
    block = Residual(WIDTH, attention(output_projection=False))
    x, valid = torch.randn(2, TIME, WIDTH), [3, 5]
    found = block(x, lengths(torch.tensor(valid)))
    project = block.attention.project
    parts = [slice(start, start + WIDTH) for start in (0, WIDTH, 2 * WIDTH)]
    for row, n in enumerate(valid):
        normed = block.norm(x[row, :n])
        q, k, v = (normed @ project.weight[part].T + project.bias[part] for part in parts)
        p = torch.stack(
            [torch.stack([torch.exp(q[i] @ k[j] / WIDTH**0.5) for j in range(n)]) for i in range(n)]
        )
        seen = (p / p.sum(1, keepdim=True)) @ v
        expected = torch.relu(block.to_next(x[row, :n] + seen))
        assert_close(found[row, :n], expected, atol=1e-6, rtol=1e-5)
