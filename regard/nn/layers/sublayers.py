"""Transformer blocks: attention and feed-forward layers, with residuals and norms."""

from collections.abc import Callable
from typing import Any, Literal

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import KeyValueCache, Mask, Mechanism, Packing
from regard.attention.arguments import must_be_wide
from regard.nn.layers.depth import DepthAttention
from regard.nn.layers.dropout import drop
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.stream import Stream, of_first

Norm = Literal["pre", "post"]
#: Builds a norm for a width: LayerNorm, or RMSNorm in T5.
MakeNorm = Callable[[int], nn.Module]


class Sublayer(nn.Module):
    """x + f(LayerNorm x) ("pre": Xiong et al. 2020) or LayerNorm(x + f(x)) ("post": Vaswani 2017).

    In training, entries of f's output are dropped with probability ``dropout``. With "pre" the
    last map of f is initialised with zeros, so that the sublayer is the identity at first (Zhang et
    al. 2019, Fixup). With attention over depth it is f(LayerNorm h) instead, h = depth(x).
    """

    def __init__(
        self,
        width: int,
        work: nn.Module,
        dropout: float,
        norm: Norm,
        make_norm: MakeNorm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.norm, self.work, self.dropout = make_norm(width), work, dropout
        self.norm_first, self.width = norm == "pre", width
        self.depth: DepthAttention | None = None
        last = work.narrow if isinstance(work, FeedForward) else getattr(work, "output", None)
        if self.norm_first and isinstance(last, nn.Linear):
            nn.init.zeros_(last.weight)
            if last.bias is not None:
                nn.init.zeros_(last.bias)

    def forward(
        self,
        x: Float[Tensor, "*batch width"],
        *args: Any,
        stream: Stream | None = None,
        **kwargs: Any,
    ) -> Float[Tensor, "*batch width"]:
        """Return the next x; further arguments are passed to f."""
        must_be_wide("inputs", x, self.width)
        if self.depth is not None:
            h = self.depth(x, stream or Stream())
            return drop(self.work(self.norm(h), *args, **kwargs), self.dropout, self.training)
        if self.norm_first:
            return x + drop(self.work(self.norm(x), *args, **kwargs), self.dropout, self.training)
        output = drop(self.work(x, *args, **kwargs), self.dropout, self.training)
        normed: Tensor = self.norm(x + output)
        return normed


class EncoderBlock(nn.Module):
    """Self-attention, then a feed-forward layer, each with a residual connection and a norm.

    "post": y = LayerNorm(x + attention(x)), output = LayerNorm(y + feedforward(y)). "pre": the norm
    stands before each layer instead, y = x + attention(LayerNorm(x)), and the same for y. With a
    cache and positions it is the block of a decoder without memory, such as GPT.

    Args:
        width: The width of input and output.
        attention: The self-attention.
        feedforward: The feed-forward layer.
        dropout: The probability of dropping an entry of a layer's output, in training mode.
        norm: "pre" or "post".
        make_norm: Builds a norm for a width.

    Shape:
        x: (*batch, time, width); (rows, width) with ``packing``, which leaves out padding.
        output: the shape of x

    Returns:
        The input of the next block.

    Raises:
        RegardError: The input has another width or is not floating-point.

    Source:
        Vaswani et al. 2017, section 3.1; Xiong et al. 2020 (pre-norm).

    Example:
        >>> import torch
        >>> from regard import MultiHeadAttention
        >>> block = EncoderBlock(8, MultiHeadAttention(8, 2), FeedForward(8, 16), 0.1, "post")
        >>> block(torch.zeros(3, 5, 8), mask=None).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        width: int,
        attention: Mechanism,
        feedforward: FeedForward,
        dropout: float,
        norm: Norm,
        make_norm: MakeNorm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.attention = Sublayer(width, attention, dropout, norm, make_norm)
        self.feedforward = Sublayer(width, feedforward, dropout, norm, make_norm)
        #: The last block's attention over depth, if the stack has it.
        self.end: DepthAttention | None = None

    def forward(
        self,
        x: Float[Tensor, "*batch time width"],
        mask: Mask | None,
        *,
        positions: Int[Tensor, "... places"] | None = None,
        cache: KeyValueCache | None = None,
        packing: Packing | None = None,
        stream: Stream | None = None,
    ) -> Float[Tensor, "*batch time width"]:
        """Return the input of the next layer.

        ``positions`` are 0, 1, 2, … by default. With ``packing``, x has no padding: (rows, width).
        ``stream`` is that of the stack; without one, this block is the first.
        """
        stream = stream or Stream()
        x = self.attention(
            x,
            mask=mask,
            positions=positions,
            cache=cache,
            packing=packing,
            stream=stream,
            **of_first(self.attention.work, stream.values),
        )
        output: Tensor = self.feedforward(x, stream=stream)
        return output if self.end is None else self.end(output, stream)


class DecoderBlock(nn.Module):
    """Self-attention, attention to a memory, then a feed-forward layer.

    y = attention(x), z = memory_attention(y, memory), output = feedforward(z), each with a
    residual connection and a norm as in `EncoderBlock`.

    Args:
        width: The width of input and output.
        attention: The self-attention.
        memory_attention: The attention to the memory, such as the states of an encoder.
        feedforward: The feed-forward layer.
        dropout: The probability of dropping an entry of a layer's output, in training mode.
        norm: "pre" or "post".
        make_norm: Builds a norm for a width.

    Shape:
        x: (*batch, written, width); (rows, width) with ``packing``, which leaves out padding.
        memory: (*batch, read, width); (rows, width) with ``memory_packing``.
        output: the shape of x

    Returns:
        The input of the next block.

    Raises:
        RegardError: The input or the memory has another width or is not floating-point.

    Source:
        Vaswani et al. 2017, section 3.1.

    Example:
        >>> import torch
        >>> from regard import MultiHeadAttention
        >>> from regard.attention import causal, lengths
        >>> two = [MultiHeadAttention(8, 2) for _ in range(2)]
        >>> block = DecoderBlock(8, *two, FeedForward(8, 16), 0.1, "post")
        >>> x, memory, read = torch.zeros(3, 5, 8), torch.zeros(3, 7, 8), torch.tensor([7, 4, 2])
        >>> block(x, memory, causal(), lengths(read), positions=torch.arange(5)).shape
        torch.Size([3, 5, 8])
    """

    def __init__(
        self,
        width: int,
        attention: Mechanism,
        memory_attention: Mechanism,
        feedforward: FeedForward,
        dropout: float,
        norm: Norm,
        make_norm: MakeNorm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.attention = Sublayer(width, attention, dropout, norm, make_norm)
        self.memory_attention = Sublayer(width, memory_attention, dropout, norm, make_norm)
        self.feedforward = Sublayer(width, feedforward, dropout, norm, make_norm)
        #: The last block's attention over depth, if the stack has it.
        self.end: DepthAttention | None = None

    def forward(
        self,
        x: Float[Tensor, "*batch written width"],
        memory: Float[Tensor, "*memory_batch read width"],
        mask: Mask | None,
        memory_mask: Mask | None,
        *,
        positions: Int[Tensor, "... places"],
        cache: KeyValueCache | None = None,
        memory_cache: KeyValueCache | None = None,
        packing: Packing | None = None,
        memory_packing: Packing | None = None,
        stream: Stream | None = None,
    ) -> Float[Tensor, "*batch written width"]:
        """Return the input of the next layer.

        ``cache`` keeps the keys of previous steps, ``memory_cache`` those of the memory. With
        packings, x and memory have no padding: (rows, width). ``stream`` is that of the stack;
        without one, this block is the first.
        """
        stream = stream or Stream()
        x = self.attention(
            x,
            mask=mask,
            positions=positions,
            cache=cache,
            packing=packing,
            stream=stream,
            **of_first(self.attention.work, stream.values),
        )
        x = self.memory_attention(
            x,
            memory,
            mask=memory_mask,
            positions=positions,
            cache=memory_cache,
            packing=(packing, memory_packing),
            stream=stream,
            **of_first(self.memory_attention.work, stream.memory_values),
        )
        output: Tensor = self.feedforward(x, stream=stream)
        return output if self.end is None else self.end(output, stream)
