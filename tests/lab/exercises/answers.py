"""Right answers in several styles, and wrong ones: a right one with one change, and the fault.

A wrong answer is (old code, new code, words of the message that must name the fault).
"""

#: What every answer imports.
HEAD = "import math\nimport torch\nfrom torch import nn\n"
#: The first right answer of each exercise is the one that `WRONG` changes.
RIGHT: dict[str, list[str]] = {}
WRONG: dict[str, list[tuple[str, str, str]]] = {}

RIGHT["kernel-regression"] = [
    """
def kernel_regression(x, keys, values, width):
    scores = -(((x[:, None] - keys[None, :]) * width) ** 2) / 2
    weights = torch.softmax(scores, dim=1)
    return weights @ values
""",
    """
def kernel_regression(x, keys, values, width):
    rows = []
    for query in x:
        kernel = torch.exp(-0.5 * (width * (query - keys)).pow(2))
        rows.append((kernel / kernel.sum() * values).sum())
    return torch.stack(rows)
""",
]
WRONG["kernel-regression"] = [
    ("dim=1", "dim=0", "over the queries"),
    (" / 2", "", "factor 1/2"),
    ("= -(", "= (", "sign of the exponent"),
    ("* width) ** 2", ") ** 2 * width", "after the square"),
    (" * width", "", "width is not used"),
    (" * width", " / width", "divides the distance"),
    ("torch.softmax(scores, dim=1)", "torch.exp(scores)", "not divided by their sum"),
    (" * width", " * width.item()", "no gradient reaches width"),
    ("(x[:, None]", "(x.sub_(0.1)[:, None]", "changes its argument x"),
    ("return weights", "values.mul_(1.5)\n    return weights / 1.5", "changes its argument values"),
    ("weights @ values", "(weights @ values)[:, None]", "shape (1, 1), not (1,)"),
]  # fmt: skip

RIGHT["nearest-neighbours"] = [
    """
def nearest(x, keys, values, k):
    distances = (x[:, None] - keys).abs()
    index = torch.topk(distances, k, dim=1, largest=False).indices
    return values[index].mean(dim=1)
""",
    """
def nearest(x, keys, values, k):
    order = torch.argsort((keys[None] - x.unsqueeze(1)) ** 2, dim=-1)
    return torch.stack([values[row[:k]].sum() / k for row in order])
""",
]
WRONG["nearest-neighbours"] = [
    ("largest=False", "largest=True", "farthest"),
    (".abs()", "", "with their sign"),
    (".mean(dim=1)", ".sum(dim=1)", "summed"),
    ("values[index]", "keys[index]", "averages the keys"),
    (", k, dim", ", k - 1, dim", "one neighbour too few"),
    (", k, dim", ", 2, dim", "right for"),
    ("mean(dim=1)", "mean(dim=0)", "shape (2,), not (1,)"),
    ("values[index]", "values.detach()[index]", "no gradient reaches values"),
    ("return ", "x += 1\n    return ", "changes its argument x"),
]

RIGHT["masked-softmax"] = [
    """
def masked_softmax(scores, lengths):
    seen = torch.arange(scores.shape[2])[None, None, :] < lengths[:, None, None]
    hidden = scores.masked_fill(~seen, -1e9)
    return torch.softmax(hidden, dim=-1) * seen
""",
    """
def masked_softmax(scores, lengths):
    mask = torch.zeros_like(scores)
    for i, length in enumerate(lengths.tolist()):
        mask[i, :, :length] = 1
    powers = torch.exp(scores - scores.amax(-1, keepdim=True)) * mask
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-12)
""",
]
WRONG["masked-softmax"] = [
    ("torch.softmax(hidden", "torch.softmax(scores", "after the softmax"),
    ("-1e9", "0.0", "set to 0"),
    (" < lengths", " >= lengths", "inverted"),
    ("dim=-1", "dim=1", "over the queries"),
    ("dim=-1", "dim=0", "over the batch"),
    (" < lengths", " <= lengths", "off by one"),
    (" < lengths", " < -1 + lengths", "off by one"),
    ("~seen, -1e9", "~seen, float('-inf')", "length 0 gets NaN"),
    (" * seen", "", "length 0 gets weights"),
    ("scores.masked_fill(", "scores.masked_fill_(", "changes its argument scores"),
    ("return ", "scores.fill_(0.0)\n    return ", "changes its argument scores"),
    ("scores.shape[2]", "3", "right for"),
]

RIGHT["scores"] = [
    """
def dot(q, k):
    return torch.einsum("bnd,bmd->bnm", q, k)

def scaled(q, k):
    return torch.bmm(q, k.transpose(1, 2)) / math.sqrt(q.shape[-1])

def additive(q, k, W_q, W_k, w):
    hidden = torch.tanh((q @ W_q.T).unsqueeze(2) + (k @ W_k.T).unsqueeze(1))
    return hidden @ w

def bilinear(q, k, W):
    return q @ W @ k.transpose(1, 2)
""",
    """
def dot(q, k):
    return (q[:, :, None] * k[:, None]).sum(-1)

def scaled(q, k):
    return dot(q * q.size(2) ** -0.5, k)

def additive(q, k, W_q, W_k, w):
    W = torch.cat([W_q, W_k], 1)
    pairs = [torch.cat([q[:, :, None].expand(-1, -1, k.shape[1], -1),
                        k[:, None].expand(-1, q.shape[1], -1, -1)], -1)]
    return torch.einsum("h,bnmh->bnm", w, torch.tanh(nn.functional.linear(pairs[0], W)))

bilinear = lambda q, k, W: dot(q, k @ W.T)
""",
]
WRONG["scores"] = [
    (" / math.sqrt(q.shape[-1])", "", "scale 1/√d is missing"),
    ("math.sqrt(q.shape[-1])", "q.shape[-1]", "divides by d"),
    ("/ math", "* math", "multiplies by √d"),
    ("math.sqrt(q.shape[-1])", "math.sqrt(k.shape[1])", "number of keys"),
    ("->bnm", "->bmn", "swapped"),
    ("torch.tanh((q", "((q", "tanh is missing"),
    ("    return hidden @ w", "    return hidden.sum(-1)", "w is missing"),
    ("unsqueeze(2) + ", "unsqueeze(2) * ", "multiplied, not added"),
    ("q @ W @ k.transpose(1, 2)", "q @ W @ k.transpose(1, 2) / q.shape[-1] ** 0.5", "no scale"),
    ("math.sqrt(q.shape[-1])", "math.sqrt(2)", "right for"),
]

RIGHT["context-vector"] = [
    """
def context_vector(encoder_out, hidden_state, W):
    scores = torch.bmm(encoder_out @ W.T, hidden_state.permute(1, 2, 0))
    weights = torch.softmax(scores, dim=1)
    return torch.sum(weights * encoder_out, dim=1, keepdim=True)
""",
    """
def context_vector(encoder_out, hidden_state, W):
    query = hidden_state.squeeze(0) @ W
    weights = torch.einsum("bth,bh->bt", encoder_out, query).softmax(-1)
    return weights.unsqueeze(1) @ encoder_out
""",
]
WRONG["context-vector"] = [
    ("dim=1)\n", "dim=2)\n", "last axis"),
    ("dim=1)\n", "dim=0)\n", "over the batch"),
    ("torch.softmax(scores, dim=1)", "scores", "without a softmax"),
    ("W.T", "W", "wrong side"),
    (" @ W.T", "", "W is not used"),
    ("weights * encoder_out", "weights * (encoder_out @ W.T)", "values are W h"),
    (", keepdim=True", "", "shape (1, 2), not (1, 1, 2)"),
    ("torch.sum(", "torch.mean(", "divided by the length"),
    ("permute(1, 2, 0)", "view(1, 2, 1)", "right for"),
    ("scores, dim", "scores.detach(), dim", "no gradient reaches hidden_state"),
]

RIGHT["next-token"] = [
    """
def get_next_token(model, encoder_out, input_X, hidden_state):
    embedding = model.embedding_layer(input_X)
    context = model.get_context_vector(encoder_out, hidden_state)
    output, new = model.decoder(torch.cat([embedding, context], dim=-1), hidden_state)
    return torch.argmax(model.linear(output).squeeze(1), dim=1), new

def decoding(model, encoder_out, decoder_X, hidden_state):
    outputs = []
    for i in range(decoder_X.shape[1]):
        embedding = model.embedding_layer(decoder_X[:, i : i + 1])
        context = model.get_context_vector(encoder_out, hidden_state)
        output, hidden_state = model.decoder(torch.cat([embedding, context], -1), hidden_state)
        outputs.append(output)
    return torch.cat(outputs, dim=1)
""",
    """
def step(model, memory, symbols, state):
    read = model.embedding_layer(symbols), model.get_context_vector(memory, state)
    return model.decoder(torch.concat(read, 2), state)

def get_next_token(model, encoder_out, input_X, hidden_state):
    out, state = step(model, encoder_out, input_X, hidden_state)
    return [model.linear(out[:, -1]).log_softmax(-1).max(-1).indices, state]

def decoding(model, encoder_out, decoder_X, hidden_state):
    out = torch.empty(*decoder_X.shape, hidden_state.shape[-1])
    for i, symbols in enumerate(decoder_X.split(1, dim=1)):
        one, hidden_state = step(model, encoder_out, symbols, hidden_state)
        out[:, i] = one[:, 0]
    return out
""",
]
WRONG["next-token"] = [
    ("[embedding, context], dim=-1), hidden_state)", "[embedding, context], dim=-1))", "zeros"),
    ("[embedding, context], dim", "[context, embedding], dim", "wrong order"),
    ("dim=1), new", "dim=1), hidden_state", "old state"),
    (
        "torch.argmax(model.linear(output).squeeze(1), dim=1)",
        "model.linear(output).squeeze(1)",
        "logits",
    ),
    ("argmax", "argmin", "least likely"),
    ("output, hidden_state = model", "output, _ = model", "not carried on"),
    ("i : i + 1", "0:1", "first symbol"),
    ("cat(outputs", "cat(outputs[::-1]", "reversed"),
    ("    outputs = []", "    outputs = []; hidden_state = hidden_state * 0", "initial state"),
    ("squeeze(1), dim=1)", "squeeze(1), dim=0)", "returned value 1 of 2"),
]

RIGHT["heads"] = [
    """
def split_heads(x, heads):
    batch, n, width = x.shape
    return x.view(batch, n, heads, width // heads).permute(0, 2, 1, 3)

def join_heads(x):
    batch, heads, n, d = x.shape
    return x.permute(0, 2, 1, 3).reshape(batch, n, heads * d)
""",
    """
def split_heads(x, heads):
    return torch.stack(x.chunk(heads, dim=-1), dim=1)

def join_heads(x):
    return torch.cat(x.unbind(1), dim=-1)
""",
]
WRONG["heads"] = [
    (
        "x.view(batch, n, heads, width // heads).permute(0, 2, 1, 3)",
        "x.reshape(batch, heads, n, -1)",
        "across words",
    ),
    ("width // heads).permute(0, 2, 1, 3)", "width // heads)", "not swapped"),
    (
        "width // heads).permute(0, 2, 1, 3)",
        "width // heads).permute(0, 2, 1, 3).flatten(0, 1)",
        "one axis",
    ),
    (
        "heads, width // heads).permute(0, 2, 1, 3)",
        "width // heads, heads).permute(0, 3, 1, 2)",
        "every h-th",
    ),
    ("x.permute(0, 2, 1, 3).reshape", "x.reshape", "without swapping"),
    ("x.permute(0, 2, 1, 3).reshape(batch, n, heads * d)", "x.mean(dim=1)", "averaged"),
    ("x.permute(0, 2, 1, 3).reshape", "x.permute(0, 2, 3, 1).reshape", "interleaved"),
    ("heads, width // heads)", "2, width // 2)", "right for"),
]

RIGHT["positions"] = [
    """
def sinusoidal(length, width):
    table = torch.zeros(length, width)
    for i in range(length):
        for j in range(width // 2):
            angle = i / 10000 ** (2 * j / width)
            table[i, 2 * j] = math.sin(angle)
            table[i, 2 * j + 1] = math.cos(angle)
    return table

def rotate(p, offset):
    out = []
    for j in range(len(p) // 2):
        angle = offset / 10000 ** (2 * j / len(p))
        sine, cosine = p[2 * j], p[2 * j + 1]
        out.append(math.cos(angle) * sine + math.sin(angle) * cosine)
        out.append(math.cos(angle) * cosine - math.sin(angle) * sine)
    return torch.stack(out)
""",
    """
def sinusoidal(length, width):
    scale = torch.exp(-math.log(10000) * torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(length).float(), scale)
    table = torch.empty(length, width)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table

def rotate(p, offset):
    scale = torch.exp(-math.log(10000) * torch.arange(0, len(p), 2) / len(p)) * offset
    turn = torch.polar(torch.ones_like(scale), -scale)
    both = torch.view_as_complex(p.view(-1, 2).contiguous())
    return torch.view_as_real(both * turn).flatten()
""",
]
WRONG["positions"] = [
    ("angle = i /", "angle = (i + 1) /", "begin at 1"),
    ("** (2 * j / width)", "** (j / width)", "exponent is j / d"),
    ("angle = i / 10000", "angle = i / 1000", "base is not 10000"),
    ("angle = i / 10000", "angle = i * 10000", "frequencies rise"),
    (
        "table[i, 2 * j] = math.sin(angle)\n            table[i, 2 * j + 1]",
        "table[i, j] = math.sin(angle)\n            table[i, width // 2 + j]",
        "two halves",
    ),
    (
        "2 * j + 1] = math.cos(angle)",
        "2 * j + 1] = math.cos(i / 10000 ** ((2 * j + 1) / width))",
        "another frequency",
    ),
    ("angle = offset", "angle = -offset", "backwards"),
    ("offset / 10000 ** (2 * j / len(p))", "offset", "same angle"),
    ("    return torch.stack(out)", "    return p", "not rotated"),
]

RIGHT["causal-mask"] = [
    """
def causal_attention(q, k, v):
    n = q.shape[1]
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[2])
    seen = torch.ones(n, n).tril().bool()
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return weights @ v

def shift_right(targets, begin):
    first = torch.full((targets.shape[0], 1), begin)
    return torch.cat([first, targets[:, :-1]], dim=1)
""",
    """
def causal_attention(q, k, v):
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

def shift_right(targets, begin):
    out = targets.roll(1, 1)
    out[:, 0] = begin
    return out
""",
]
WRONG["causal-mask"] = [
    (
        'scores.masked_fill(~seen, float("-inf")).softmax(-1)',
        "scores.softmax(-1) * seen",
        "after the softmax",
    ),
    ('scores.masked_fill(~seen, float("-inf"))', "(scores * seen)", "row 0 sees position 1"),
    ("tril()", "tril(1)", "leak of one position"),
    ("tril()", "triu()", "upside down"),
    ("~seen", "~(seen | True)", "mask is missing"),
    (" / math.sqrt(q.shape[2])", "", "scale 1/√d is missing"),
    ("softmax(-1)", "softmax(1).nan_to_num()", "over the queries"),
    ("torch.cat([first, targets[:, :-1]], dim=1)", "targets", "targets themselves"),
    ("[first, targets[:, :-1]]", "[targets[:, 1:], first]", "to the left"),
    ("targets[:, :-1]]", "targets[:, 1:]]", "nothing is shifted"),
    ("targets[:, :-1]]", "targets]", "one too long"),
    (
        "return torch.cat",
        "targets[:, 0] = begin\n    return torch.cat",
        "changes its argument targets",
    ),
]

RIGHT["residual"] = [
    """
def layer_norm(x, gain, bias):
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * gain + bias

def residual_block(x, sublayer, gain, bias):
    return x + sublayer(layer_norm(x, gain, bias))
""",
    """
def layer_norm(x, gain, bias):
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return torch.addcmul(bias, (x - mean) * (variance + 1e-5).rsqrt(), gain)

def residual_block(x, sublayer, gain, bias):
    y = sublayer(layer_norm(x, gain, bias))
    y = y.add(x)
    return y
""",
]
WRONG["residual"] = [
    ("dim=-1", "dim=1", "over the words"),
    ("dim=-1", "dim=(0, 1)", "BatchNorm"),
    ("((x - mean) ** 2).mean(dim=-1", "x.var(dim=-1", "d − 1"),
    (" + 1e-5", "", "1e-5 is missing"),
    ("torch.sqrt(variance + 1e-5)", "(variance + 1e-5)", "not by its root"),
    ("return (x - mean)", "return x", "mean is not subtracted"),
    (" * gain", "", "gain is not used"),
    ("return x + sublayer", "return sublayer", "no residual"),
    ("sublayer(layer_norm(x, gain, bias))", "sublayer(x)", "not normalised"),
    (
        "x + sublayer(layer_norm(x, gain, bias))",
        "layer_norm(x + sublayer(x), gain, bias)",
        "output is normalised",
    ),
    ("return x + sublayer", "x += sublayer", "returns a NoneType"),
    (
        "return x + sublayer(layer_norm(x, gain, bias))",
        "x += sublayer(layer_norm(x, gain, bias))\n    return x",
        "changes its argument x",
    ),
]

RIGHT["cls"] = [
    """
def add_cls(x, lengths, cls):
    first = cls.repeat(x.shape[0], 1, 1)
    return torch.cat([first, x], dim=1), lengths + 1

def classify(states, W, b):
    return states[:, 0] @ W.T + b
""",
    """
def add_cls(x, lengths, cls):
    longer = nn.functional.pad(x, (0, 0, 1, 0))
    marks = torch.zeros(x.shape[1] + 1)
    marks[0] = 1
    return [longer + marks[:, None] * cls, lengths.add(1)]

def classify(states, W, b):
    return nn.functional.linear(states.select(1, 0), W, b)
""",
]
WRONG["cls"] = [
    ("[first, x]", "[x, first]", "at the end"),
    ("lengths + 1", "lengths", "do not count CLS"),
    ("[first, x]", "[first, x[:, 1:]]", "replaces the first word"),
    ("first = cls", "first = torch.zeros(cls.shape)", "zeros"),
    ("torch.cat([first, x], dim=1)", "x + first", "summed to every word"),
    (", lengths + 1", "", "not 2 values"),
    ("states[:, 0]", "states[:, -1]", "last state"),
    ("states[:, 0]", "states.mean(1)", "mean of all states"),
    (" + b", "", "bias is missing"),
    ("states[:, 0] @ W.T + b", "(states[:, 0] @ W.T + b).softmax(-1)", "probabilities"),
    ("lengths + 1", "lengths.add_(1)", "changes its argument lengths"),
    ("cls.repeat", "torch.tensor(cls.tolist()).repeat", "no gradient reaches cls"),
]

RIGHT["span-corruption"] = [
    """
def corrupt(text, start, length, block):
    end = start + length
    prefix, span, suffix = text[:start], text[start:end], text[end:]
    out = prefix + "⁇" + suffix + "⁇" + span + "⁇"
    return out + "□" * (block - len(out))

def training_pair(corrupted):
    return corrupted[:-1], corrupted[1:]
""",
    """
def corrupt(text, start, length, block):
    letters = list(text)
    span = [letters.pop(start) for _ in range(length)]
    letters.insert(start, "⁇")
    return "".join([*letters, "⁇", *span, "⁇"]).ljust(block, "□")

training_pair = lambda corrupted: [corrupted[: len(corrupted) - 1], corrupted[1:]]
""",
]
WRONG["span-corruption"] = [
    ("start + length", "start + length + 1", "one character too many"),
    ("start + length", "length", "taken for the end"),
    (' + span + "⁇"', " + span", "last ⁇ is missing"),
    ('suffix + "⁇" + span', 'span + "⁇" + suffix', "before the suffix"),
    ('prefix + "⁇" + suffix', "prefix + suffix", "where the span was"),
    ('prefix + "⁇" + suffix', "text", "still in its place"),
    ('return out + "□" * (block - len(out))', "return out", "padding is missing"),
    ('out + "□" * (block - len(out))', 'out.rjust(block, "□")', "in front"),
    ("(block - len(out))", "(12 - len(out))", "right for"),
    ("corrupted[:-1], corrupted[1:]", "corrupted[:-1], corrupted[:-1]", "y equals x"),
    ("corrupted[:-1], corrupted[1:]", "corrupted[1:], corrupted[:-1]", "swapped"),
    ("corrupted[:-1], ", "corrupted, ", "longer than y"),
]

RIGHT["synthesizer"] = [
    """
def synthesizer(x, A, b1, B, b2, V):
    n = x.shape[1]
    scores = torch.relu(x @ A + b1) @ B + b2
    weights = torch.softmax(scores[:, :, :n], dim=-1)
    return weights @ (x @ V)
""",
    """
def synthesizer(x, A, b1, B, b2, V):
    rows = []
    for words in x:
        hidden = (words @ A + b1).clamp(min=0)
        scores = hidden @ B[:, : len(words)] + b2[: len(words)]
        powers = torch.exp(scores - scores.max(1, keepdim=True).values)
        rows.append(powers / powers.sum(1, keepdim=True) @ words @ V)
    return torch.stack(rows)
""",
]
WRONG["synthesizer"] = [
    ("torch.relu(x @ A + b1)", "(x @ A + b1)", "ReLU is missing"),
    ("dim=-1", "dim=1", "over the rows"),
    (
        "torch.softmax(scores[:, :, :n], dim=-1)",
        "torch.softmax(scores, dim=-1)[:, :, :n]",
        "cut after",
    ),
    (":, :n]", ":, -n:]", "last n scores"),
    ("x @ A + b1", "x @ A", "b1 is missing"),
    (" + b2", "", "b2 is missing"),
    ("(x @ V)", "x", "not X V"),
    ("torch.softmax(scores[:, :, :n], dim=-1)", "scores[:, :, :n]", "softmax is missing"),
    ("scores[:, :, :n]", "scores[:, :, :n] / A.shape[1] ** 0.5", "no scale"),
    ("scores[:, :, :n]", "scores", "right for"),
    ("torch.relu(x @ A + b1)", "torch.relu(x @ A + b1).detach()", "no gradient reaches A"),
]

RIGHT["rotary"] = [
    """
def rotary(x, positions):
    d = x.shape[-1]
    speed = 10000 ** (-torch.arange(0, d, 2) / d)
    angles = positions[:, None] * speed
    a, b = x[..., 0::2], x[..., 1::2]
    first = a * torch.cos(angles) - b * torch.sin(angles)
    second = a * torch.sin(angles) + b * torch.cos(angles)
    return torch.stack([first, second], dim=-1).flatten(2)

def relative_scores(q, k):
    places = torch.arange(q.shape[1])
    return rotary(q, places) @ rotary(k, places).transpose(1, 2)
""",
    """
def rotary(x, positions):
    d = x.shape[-1]
    speed = torch.exp(torch.arange(0, d, 2) * (-math.log(1e4) / d))
    angles = torch.outer(positions.float(), speed)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

def relative_scores(q, k):
    rows = []
    for i in range(q.shape[1]):
        turned = rotary(k, torch.arange(k.shape[1]) - i)
        rows.append((turned * q[:, i : i + 1]).sum(-1))
    return torch.stack(rows, 1)
""",
]
WRONG["rotary"] = [
    ("angles = positions", "angles = -positions", "backwards"),
    ("positions[:, None] * speed", "positions[:, None] * torch.ones(len(speed))", "same angle"),
    ("(-torch.arange(0, d, 2) / d)", "(-torch.arange(d // 2) / d)", "exponent is j / d"),
    ("x[..., 0::2], x[..., 1::2]", "x[..., : d // 2], x[..., d // 2 :]", "must be"),
    (
        "torch.stack([first, second], dim=-1).flatten(2)",
        "torch.cat([first, second], -1)",
        "joined as halves",
    ),
    ("torch.cos(angles) - b", "torch.cos(angles) + b", "one sign"),
    ("angles = positions", "angles = (positions + 1)", "counted from 1"),
    ("angles = positions", "angles = torch.arange(x.shape[1])", "positions are ignored"),
    ("rotary(k, places)", "k", "only the queries"),
    ("rotary(k, places)", "rotary(k, -places)", "opposite"),
]

RIGHT["head-variance"] = [
    """
def one_head(keys, values, q):
    weights = torch.softmax(keys @ q, dim=1)
    return weights @ values

def two_heads(keys, values, q1, q2):
    return (one_head(keys, values, q1) + one_head(keys, values, q2)) / 2

def spread(outputs):
    return ((outputs - outputs.mean(dim=0)) ** 2).sum(dim=1).mean()
""",
    """
def one_head(keys, values, q):
    out = [torch.softmax(sample @ q, 0) @ values for sample in keys]
    return torch.stack(out)

def two_heads(keys, values, q1, q2):
    scores = keys @ torch.stack([q1, q2], 1)
    return scores.softmax(1).mean(2) @ values

def spread(outputs):
    return outputs.var(0, correction=0).sum()
""",
]
WRONG["head-variance"] = [
    ("keys @ q, dim=1", "keys @ q, dim=0", "over the samples"),
    ("torch.softmax(keys @ q, dim=1)", "keys @ q", "without a softmax"),
    ("keys @ q,", "keys @ q / len(q) ** 0.5,", "scaled"),
    (
        "(one_head(keys, values, q1) + one_head(keys, values, q2)) / 2",
        "one_head(keys, values, (q1 + q2) / 2)",
        "queries are averaged",
    ),
    ("q2)) / 2", "q2))", "summed, not averaged"),
    ("values, q2)", "values, q1)", "second query is not used"),
    ("((outputs - outputs.mean(dim=0)) ** 2).sum(dim=1).mean()", "outputs.var(0).sum()", "less 1"),
    (".sum(dim=1).mean()", ".mean()", "numbers of an output"),
    (".sum(dim=1).mean()", ".sum()", "summed over the samples"),
    (" - outputs.mean(dim=0)", "", "mean is not subtracted"),
    (".sum(dim=1).mean()", ".sum(dim=1).mean().item()", "not a tensor of shape ()"),
]

RIGHT["linformer"] = [
    """
def linformer(q, k, v, E, F):
    keys, values = E @ k, F @ v
    scores = q @ keys.transpose(1, 2) / math.sqrt(q.shape[-1])
    return torch.softmax(scores, dim=-1) @ values
""",
    """
def linformer(q, k, v, E, F):
    keys = torch.einsum("rm,bmd->brd", E, k)
    values = torch.einsum("rm,bmd->brd", F, v)
    return nn.functional.scaled_dot_product_attention(q, keys, values)
""",
]
WRONG["linformer"] = [
    ("E @ k, F @ v", "k, v", "not projected"),
    ("F @ v", "E @ v", "projected by E"),
    ("E @ k, F @ v", "F @ k, E @ v", "swapped"),
    (" / math.sqrt(q.shape[-1])", "", "scale 1/√d is missing"),
    ("math.sqrt(q.shape[-1])", "math.sqrt(E.shape[0])", "from r"),
    ("dim=-1", "dim=1", "over the queries"),
    ("torch.softmax(scores, dim=-1)", "scores", "softmax is missing"),
    ("math.sqrt(q.shape[-1])", "math.sqrt(2)", "right for"),
    ("F @ v", "F.data @ v", "no gradient reaches F"),
]
