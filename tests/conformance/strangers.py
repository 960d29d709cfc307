"""Attention as people write it elsewhere: each with its own signature, masks and return values."""

import math
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F


def masked_softmax(scores, valid_lens):
    """Softmax over the first keys of each text or query, as in d2l.ai."""
    if valid_lens is None:
        return scores.softmax(-1)
    shape = scores.shape
    if valid_lens.dim() == 1:
        valid_lens = torch.repeat_interleave(valid_lens, shape[1])
    else:
        valid_lens = valid_lens.reshape(-1)
    flat = scores.reshape(-1, shape[-1])
    keep = torch.arange(shape[-1])[None, :] < valid_lens[:, None]
    return flat.masked_fill(~keep, -1e6).reshape(shape).softmax(-1)


class Book(nn.Module):
    """Multi-head attention with valid lengths, as in d2l.ai: four arguments, lazy projections."""

    def __init__(self, num_hiddens, num_heads, dropout, bias=False):
        super().__init__()
        self.num_heads, self.dropout = num_heads, nn.Dropout(dropout)
        self.W_q, self.W_k, self.W_v, self.W_o = (
            nn.LazyLinear(num_hiddens, bias=bias) for _ in range(4)
        )

    def split(self, x):
        return x.reshape(*x.shape[:2], self.num_heads, -1).permute(0, 2, 1, 3).flatten(0, 1)

    def forward(self, queries, keys, values, valid_lens):
        q, k, v = self.split(self.W_q(queries)), self.split(self.W_k(keys)), self.W_v(values)
        if valid_lens is not None:
            valid_lens = torch.repeat_interleave(valid_lens, self.num_heads, dim=0)
        scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.shape[-1])
        self.attention_weights = masked_softmax(scores, valid_lens)
        output = torch.bmm(self.dropout(self.attention_weights), self.split(v))
        output = output.unflatten(0, (-1, self.num_heads)).transpose(1, 2).flatten(2)
        return self.W_o(output)


class Annotated(nn.Module):
    """``forward(query, key, value, mask)`` with a mask of 0 and 1 over heads, 0 hides."""

    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        q, k, v = (
            linear(x).view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)
            for linear, x in zip(self.linears, (query, key, value), strict=False)
        )
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        x = torch.matmul(self.dropout(scores.softmax(dim=-1)), v)
        return self.linears[-1](
            x.transpose(1, 2).contiguous().view(q.size(0), -1, self.h * self.d_k)
        )


class Small(nn.Module):
    """A causal layer made from a configuration, without a mask argument."""

    def __init__(self, config=None):
        super().__init__()
        config = config or SimpleNamespace(n_embd=12, n_head=3, block_size=512, dropout=0.0)
        self.n_head, self.n_embd = config.n_head, config.n_embd
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.register_buffer("bias", torch.tril(torch.ones(config.block_size, config.block_size)))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (
            y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for y in self.c_attn(x).split(self.n_embd, dim=2)
        )
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:T, :T] == 0, float("-inf"))
        return self.c_proj((att.softmax(-1) @ v).transpose(1, 2).contiguous().view(B, T, C))


class Letters(nn.Module):
    """A causal language model over numbers of symbols, which returns logits and a loss."""

    def __init__(self, vocab=20, width=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(400, width)
        self.norm, self.layer = nn.LayerNorm(width), Small()
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        logits = self.head(x + self.layer(self.norm(x)))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits, loss


class Einops(nn.Module):
    """Self- or cross-attention by einsum, with masks of keys (b, j), True for words to be seen."""

    def __init__(self, dim, heads=3, dim_head=4, dropout=0.0):
        super().__init__()
        self.heads, self.scale = heads, dim_head**-0.5
        self.to_q = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_kv = nn.Linear(dim, 2 * heads * dim_head, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.to_out = nn.Linear(heads * dim_head, dim)

    def forward(self, x, context=None, mask=None):
        context = x if context is None else context
        q, (k, v) = self.to_q(x), self.to_kv(context).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        dots = torch.einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        if mask is not None:
            dots = dots.masked_fill(~mask[:, None, None, :], -torch.finfo(dots.dtype).max)
        out = torch.einsum("b h i j, b h j d -> b h i d", self.dropout(dots.softmax(-1)), v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class TimeFirst(nn.Module):
    """Time before batch, True hides a key, returns the weights averaged over heads."""

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        self.embed_dim, self.num_heads, self.p = embed_dim, num_heads, dropout
        self.in_proj, self.out_proj = (
            nn.Linear(embed_dim, 3 * embed_dim), nn.Linear(embed_dim, embed_dim)
        )  # fmt: skip

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None):
        q, k, v = (
            F.linear(x, w, b)
            for x, w, b in zip(
                (query, key, value),
                self.in_proj.weight.chunk(3),
                self.in_proj.bias.chunk(3),
                strict=True,
            )
        )
        (n, batch, _), m = q.shape, k.shape[0]
        q, k, v = (
            x.reshape(-1, batch * self.num_heads, self.embed_dim // self.num_heads).transpose(0, 1)
            for x in (q, k, v)
        )
        scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
        if attn_mask is not None:
            scores = scores + attn_mask
        if key_padding_mask is not None:
            scores = scores.view(batch, self.num_heads, n, m)
            scores = scores.masked_fill(key_padding_mask[:, None, None, :], -math.inf).view(
                -1, n, m
            )
        weights = scores.softmax(-1)
        output = F.dropout(weights, self.p, self.training) @ v
        output = output.transpose(0, 1).reshape(n, batch, self.embed_dim)
        return self.out_proj(output), weights.view(batch, self.num_heads, n, m).mean(1)


class Additive(nn.Module):
    """Bahdanau's attention over a memory with an additive mask of each pair, large for hidden."""

    def __init__(self, hidden_size=12, size=7):
        super().__init__()
        self.hidden_size = hidden_size
        self.query, self.key = nn.Linear(hidden_size, size), nn.Linear(hidden_size, size)
        self.score = nn.Linear(size, 1, bias=False)

    def forward(self, hidden_states, encoder_outputs=None, attention_mask=None):
        memory = hidden_states if encoder_outputs is None else encoder_outputs
        scores = self.score(
            torch.tanh(self.query(hidden_states)[:, :, None] + self.key(memory)[:, None])
        ).squeeze(-1)
        if attention_mask is not None:
            scores = scores + attention_mask
        weights = scores.softmax(-1)
        return {"output": weights @ memory, "attention": weights}


STRANGERS = (Book, Annotated, Small, Letters, Einops, TimeFirst, Additive)
