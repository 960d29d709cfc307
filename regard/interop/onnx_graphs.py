"""Networks as ONNX graphs: labels in one pass, or generation step by step with an external cache.

A graph takes any batch size and length. A decoder's keys and values are its inputs and outputs, so
that a step reads only the new tokens. An encoder-decoder is two graphs: the first prepares the keys
and values of the source for all steps of the second.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import KeyValueCache, causal, dense
from regard.attention import lengths as up_to
from regard.attention.prepared import Prepared
from regard.core.errors import RegardError, importing
from regard.nn.models.bert import BERT
from regard.nn.models.gpt import GPT
from regard.nn.models.seq2seq import Seq2Seq
from regard.nn.models.seq2seq import Writing as RecurrentWriting
from regard.nn.models.t5 import T5
from regard.nn.models.transformer import Transformer

Tensors = tuple[Tensor, ...]
LARGEST = 2**31 - 1  # bytes of a protobuf message
DYNAMIC = torch.export.Dim.DYNAMIC


class GivenCache(KeyValueCache):
    """A cache that is given as tensors and grows by concatenation, so that it can be traced."""

    def __init__(
        self, past: Sequence[Tensor] = (), positions: Tensor | None = None, *, fixed: bool = False
    ) -> None:
        super().__init__(fixed=fixed)
        if past and positions is not None:
            self._room = [*past, positions.unsqueeze(-1)]
            self._length = past[-1].shape[-2]

    def __len__(self) -> int:
        return int(bool(self._room))  # its true length is symbolic

    @property
    def kept(self) -> Tensors:
        """Return the cached tensors without positions."""
        return tuple(self._room[:-1])

    def _append(
        self, keys: Prepared, values: Tensor, positions: Tensor
    ) -> tuple[Prepared, Tensor, Tensor]:
        if self.fixed:
            return super()._append(keys, values, positions)
        new = [*(keys if isinstance(keys, tuple) else (keys,)), values, positions.unsqueeze(-1)]
        if self._room:
            new = [torch.cat([kept, x], -2) for kept, x in zip(self._room, new, strict=True)]
        self._room, self._length = new, values.shape[-2]
        prepared = tuple(new[:-2]) if isinstance(keys, tuple) else new[0]
        return prepared, new[-2], new[-1].squeeze(-1)

    def centred(self, queries: Tensor, keys: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return queries and keys unchanged, since a graph cannot read numbers."""
        return queries, keys


@dataclass(frozen=True)
class Graph:
    """A network to trace as an ONNX graph, with example inputs.

    ``inputs`` are (name, example, dynamic axes); sizes of 0 and 1 are avoided, since torch.export
    treats them as constants. ``outputs`` are names.
    """

    name: str
    module: nn.Module
    inputs: Sequence[tuple[str, Tensor, Sequence[int]]]
    outputs: Sequence[str]
    #: The number of cached tensors of each layer, for a decoder.
    layers: Sequence[int] = field(default=())

    def to_bytes(self) -> bytes:
        """Return the ONNX file. Raises: torch cannot trace it; it exceeds ONNX's 2 GB."""
        with importing("the export to ONNX needs onnx, onnxscript and onnxruntime", "export"):
            import onnxscript  # noqa: F401, the exporter needs it
        examples = tuple(example for _, example, _ in self.inputs)
        axes = tuple(dict.fromkeys(dynamic, DYNAMIC) for *_, dynamic in self.inputs)
        with torch.no_grad(), _quiet():
            try:
                converted = torch.onnx.export(
                    self.module,
                    examples,
                    dynamo=True,
                    dynamic_shapes=(axes,),
                    verbose=False,
                    input_names=[name for name, *_ in self.inputs],
                    output_names=list(self.outputs),
                )
            except Exception as error:
                reason = " ".join(str(error).split())
                raise RegardError(
                    f"torch cannot write {self.name} as an ONNX graph ({reason:.300}); its score, "
                    "normaliser or mechanism may read numbers: try another one"
                ) from error
            assert converted is not None
            message = converted.model_proto
        if any(isinstance(module, nn.RNNBase) for module in self.module.modules()):
            # For the outputs of recurrent layers, the exporter infers the length of the examples.
            message.graph.ClearField("value_info")
            for output in message.graph.output:
                output.type.tensor_type.ClearField("shape")
        if message.ByteSize() > LARGEST:
            raise RegardError(f"{self.name} exceeds 2 GB, the largest ONNX file in one piece")
        data: bytes = message.SerializeToString(deterministic=True)
        return data


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks about torchvision, opsets and its own deprecations."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def graphs_of(network: nn.Module) -> list[Graph]:
    """Return the graphs of a network. Raises: a cache without keys and values."""
    network.eval()
    if isinstance(network, GPT):
        return [decoder(network)]
    if isinstance(network, Transformer | T5):
        return [encoder(network), decoder(network)]
    if isinstance(network, Seq2Seq):
        return recurrent(network)
    if getattr(network, "reads_trees", False):
        raise RegardError(
            "tree positions read parsed sentences, which an ONNX graph of texts does not get; "
            "train with another position="
        )
    plain = plain_graph(network)
    if isinstance(network, BERT):
        tokens = torch.zeros(2, 3, dtype=torch.long)
        types = [("types", tokens, (0, 1))] if network.types else []
        outputs = ("logits", "next_sentence")
        return [Graph("model", _Masked(network), [*plain.inputs, *types], outputs)]
    return [plain]


def plain_graph(network: nn.Module) -> Graph:
    """Return the graph of (tokens, lengths) → logits, or states."""
    inputs = [("tokens", torch.ones(2, 3, dtype=torch.long), (0, 1)),
              ("lengths", torch.tensor([3, 2]), (0,))]  # fmt: skip
    return Graph("model", _Plain(network.eval()), inputs, ("logits",))


class _Traced(nn.Module):
    """A network called with all inputs of its graph, in order."""

    network: Any

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network


class _Plain(_Traced):
    """(tokens, lengths) → logits."""

    def forward(self, *given: Tensor) -> Tensor:
        logits: Tensor = self.network(*given)
        return logits


class _Masked(_Traced):
    """(tokens, lengths[, types]) → logits of words, and of the next sentence."""

    def forward(self, *given: Tensor) -> Tensors:
        states = self.network(*given)
        return self.network.to_logits(states), self.network.next_sentence(states)


class _Encoder(_Traced):
    """(tokens, lengths) → prepared keys and values of the memory, for each layer of the decoder."""

    def forward(self, *given: Tensor) -> Tensors:
        tokens, lengths = given
        writing = self.network.start(tokens, lengths)
        caches = [(GivenCache(), GivenCache(fixed=True)) for _ in self.network.decoder]
        writing.caches = list(caches)
        writing.step(tokens.new_zeros(tokens.shape[0], 1))
        return tuple(tensor for _, memory in caches for tensor in memory.kept)


class _Decoder(_Traced):
    """One decoding step: (tokens, positions, visible[, lengths, memory…], past…) → logits, past.

    ``positions`` (batch, past + time) are those of all tokens, from 0; ``visible`` is 1 for tokens
    and 0 for padding.
    """

    def __init__(
        self, network: GPT | Transformer | T5, past: Sequence[int], memory: Sequence[int]
    ) -> None:
        super().__init__(network)
        self.past, self.memory = past, memory

    def forward(self, *given: Tensor) -> Tensors:
        tokens, positions, visible, *rest = given
        network, lengths = self.network, None
        if not isinstance(network, GPT):
            lengths, *rest = rest
        memories = list(_layers(rest, self.memory))
        pasts = list(_layers(rest[sum(self.memory) :], self.past))
        length = pasts[0][-1].shape[-2]
        before, here = positions[:, :length], positions[:, length:]
        caches = [GivenCache(past, before) for past in pasts]
        seen = (visible > 0)[:, None].expand(-1, tokens.shape[1], -1)
        mask = causal() & dense(seen)
        if isinstance(network, GPT):
            x = network.read(tokens, mask, here, caches)
        else:
            assert lengths is not None
            x = network.embed(tokens, here, target=True)
            # The memory's keys and values are in its caches.
            places = [torch.arange(kept[-1].shape[-2]) for kept in memories]
            read = [GivenCache(x, at, fixed=True) for x, at in zip(memories, places, strict=True)]
            both = list(zip(caches, read, strict=True))
            x = network.decode(x, x[:, :0], mask, up_to(lengths), positions=here, caches=both)
        return network.to_logits(x), *(tensor for cache in caches for tensor in cache.kept)


def _layers(tensors: Sequence[Tensor], counts: Sequence[int]) -> Iterator[Sequence[Tensor]]:
    """Yield the tensors of each layer."""
    first = 0
    for count in counts:
        yield tensors[first : first + count]
        first += count


def encoder(network: Transformer | T5) -> Graph:
    """Return the graph of an encoder, which prepares the memory for the decoder."""
    _, memory = _caches(network)
    tokens, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 2])
    inputs = [("tokens", tokens, (0, 1)), ("lengths", lengths, (0,))]
    return Graph("encoder", _Encoder(network), inputs, _names("memory", memory))


def decoder(network: GPT | Transformer | T5) -> Graph:
    """Return the graph of a step of a decoder."""
    past, memory = _caches(network)
    counts = [len(layer) for layer in past], [len(layer) for layer in memory]
    tokens = torch.ones(2, 3, dtype=torch.long)
    every = torch.arange(5).expand(2, -1).contiguous()
    inputs: list[tuple[str, Tensor, Sequence[int]]] = [
        ("tokens", tokens, (0, 1)), ("positions", every, (0, 1)),
        ("visible", torch.ones_like(every), (0, 1)),
    ]  # fmt: skip
    if memory:
        inputs.append(("lengths", torch.tensor([3, 2]), (0,)))
    for name, layers in (("memory", memory), ("past", past)):
        tensors = [tensor for layer in layers for tensor in layer]
        for label, tensor in zip(_names(name, layers), tensors, strict=True):
            inputs.append((label, tensor, (0, tensor.ndim - 2)))
    module = _Decoder(network, *counts)
    return Graph("decoder", module, inputs, ["logits", *_names("present", past)], counts[0])


def _names(what: str, layers: Sequence[Sequence[Tensor]]) -> list[str]:
    """Return a name for each tensor of each layer: ``past.0.1``."""
    return [f"{what}.{i}.{j}" for i, layer in enumerate(layers) for j in range(len(layer))]


def _caches(network: GPT | Transformer | T5) -> tuple[list[Tensors], list[Tensors]]:
    """Return each layer's cached tensors of 2 past tokens, and of a memory of 3 tokens."""
    tokens = torch.ones(2, 3, dtype=torch.long)
    with torch.no_grad():
        if isinstance(network, GPT):
            caches = network.start(tokens[:, :2], torch.tensor([2, 2])).caches
            return [_kept(cache, 2) for cache in caches], []
        writing: Any = network.start(tokens, torch.tensor([3, 3]))
        for _ in range(2):
            writing.step(tokens[:, :1])
    pasts, memories = zip(*writing.caches, strict=True)
    return [_kept(cache, 2) for cache in pasts], [_kept(cache, 3) for cache in memories]


def _kept(cache: KeyValueCache, length: int) -> Tensors:
    if cache.state is not None or cache.routing is not None or not cache._room:
        raise RegardError(
            "this attention keeps a state instead of keys and values, which the ONNX graph of a "
            "decoder does not support; train with attention=multi-head"
        )
    return tuple(tensor.narrow(-2, 0, length).clone() for tensor in cache._room[:-1])


class _RecurrentEncoder(_Traced):
    """(tokens, lengths) → the decoder's first state, and prepared keys and values of the memory."""

    def forward(self, *given: Tensor) -> Tensors:
        writing = self.network.start(*given)
        if self.network.attend_step == "none":
            return (writing.state,)
        writing.prepared = kept = GivenCache(fixed=True)
        writing._attend(writing.state, torch.zeros(1, dtype=torch.long))
        return writing.state, *kept.kept


class _RecurrentDecoder(_Traced):
    """(tokens, lengths, state, memory…) → logits, state; a step reads one token of each text."""

    def forward(
        self, *given: Tensor
    ) -> tuple[Float[Tensor, "batch 1 words"], Float[Tensor, "batch 1 hidden"]]:
        tokens, lengths, state, *kept = given
        memory = kept[-1] if kept else state[:, :0]
        writing = RecurrentWriting(self.network, memory, lengths, state)
        if kept:
            places = torch.arange(memory.shape[1])
            writing.prepared = GivenCache(kept, places, fixed=True)
        return writing.step(tokens), writing.state


def recurrent(network: Seq2Seq) -> list[Graph]:
    """Return the graphs of a recurrent encoder and of a step of its decoder."""
    tokens, lengths = torch.ones(2, 3, dtype=torch.long), torch.tensor([3, 2])
    reader = _RecurrentEncoder(network)
    with torch.no_grad():
        state, *memory = reader(tokens, lengths)
    names = [f"memory.{i}" for i in range(len(memory))]
    texts = [("tokens", tokens, (0, 1)), ("lengths", lengths, (0,))]
    step: list[tuple[str, Tensor, Sequence[int]]] = [
        ("tokens", tokens[:, :1], (0,)), ("lengths", lengths, (0,)), ("state", state, (0,)),
        *((name, tensor, (0, 1)) for name, tensor in zip(names, memory, strict=True)),
    ]  # fmt: skip
    return [
        Graph("encoder", reader, texts, ["state", *names]),
        Graph("decoder", _RecurrentDecoder(network), step, ["logits", "next_state"]),
    ]


def in_int8(data: bytes) -> bytes:
    """Return a graph whose products of tokens with weights multiply 8-bit integers.

    Weights have a scale per column and 7 bits, since the sums of processors without VNNI overflow
    at 8; inputs are rounded with the scale of each call. Onnxruntime calls this dynamic
    quantization. A graph without such products is returned as it is.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load_from_string(data).graph
    weights = {tensor.name for tensor in graph.initializer}
    products = [node.name for node in graph.node
                if node.op_type == "MatMul" and node.input[1] in weights]  # fmt: skip
    if not products:
        return data
    with TemporaryDirectory() as folder, _quiet():
        read, write = Path(folder, "float32"), Path(folder, "int8")
        read.write_bytes(data)
        quantize_dynamic(
            read,
            write,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=products,
        )
        return write.read_bytes()


def runtime() -> Any:
    """Return the module onnxruntime. Raises: it is not installed."""
    with importing("running an ONNX graph needs onnxruntime", "export"):
        import onnxruntime
    return onnxruntime


class Session:
    """An ONNX graph in onnxruntime, with torch's number of threads, called by names."""

    def __init__(self, data: bytes) -> None:
        options = runtime().SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        providers = ["CPUExecutionProvider"]
        self.inner = runtime().InferenceSession(data, options, providers=providers)
        self.outputs = [output.name for output in self.inner.get_outputs()]

    def __call__(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs by name; inputs that the graph does not read are ignored."""
        wanted = {entry.name for entry in self.inner.get_inputs()}
        arrays = {name: x.numpy() for name, x in inputs.items() if name in wanted}
        outputs = self.inner.run(None, arrays)
        return {name: torch.from_numpy(x) for name, x in zip(self.outputs, outputs, strict=True)}


class OnnxNetwork(nn.Module):
    """The network of a `plain_graph`, computed by onnxruntime, for predictions alone."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.session = Session(data)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the logits or states of texts; without ``lengths``, no row has padding."""
        lengths = torch.full(tokens.shape[:1], tokens.shape[1]) if lengths is None else lengths
        return self.session({"tokens": tokens, "lengths": lengths})["logits"]


def written(
    sessions: Mapping[str, Session],
    network: nn.Module,
    source: Int[Tensor, "batch read"],
    lengths: Int[Tensor, " batch"],
    target: Int[Tensor, "batch written"],
) -> Float[Tensor, "batch written words"]:
    """Return the logits of known words from an encoder-decoder's graphs.

    The first step reads two tokens, the others one; a recurrent decoder always reads one.
    """
    memory = sessions["encoder"]({"tokens": source, "lengths": lengths})
    if isinstance(network, Seq2Seq):
        rows = []
        for token in target.split(1, 1):
            step = sessions["decoder"]({"tokens": token, "lengths": lengths, **memory})
            rows.append(step["logits"])
            memory["state"] = step["next_state"]
        return torch.cat(rows, 1)
    return continued(sessions["decoder"], target, {"lengths": lengths, **memory})


def continued(
    session: Session,
    target: Int[Tensor, "batch time"],
    given: Mapping[str, Tensor],
    visible: Int[Tensor, "batch time"] | None = None,
) -> Float[Tensor, "batch time words"]:
    """Return the logits of known words by steps with a cache: two tokens, then one at a time."""
    visible = torch.ones_like(target) if visible is None else visible
    positions = (visible.cumsum(1) - 1).clamp(min=0)
    past = {
        entry.name: torch.zeros(
            [len(target) if i == 0 else 0 if isinstance(n, str) else n
             for i, n in enumerate(entry.shape)]
        )
        for entry in session.inner.get_inputs() if entry.name.startswith("past.")
    }  # fmt: skip
    rows, first = [], 0
    while first < target.shape[1]:
        last = first + (1 if first else 2)
        step = session({
            "tokens": target[:, first:last], "positions": positions[:, :last],
            "visible": visible[:, :last], **given, **past,
        })  # fmt: skip
        rows.append(step.pop("logits"))
        past = {name.replace("present.", "past."): x for name, x in step.items()}
        first = last
    return torch.cat(rows, 1)


#: Sizes of the texts that check a graph: (texts, tokens read, tokens written).
CHECKED = ((3, 5, 4), (1, 1, 2), (2, 9, 7))


def largest_gap(
    network: nn.Module, sessions: Mapping[str, Session], vocabulary: int, longest: int
) -> float:
    """Return the largest difference between the logits of network and graphs, with padding.

    It is relative to the largest logit if that exceeds 1. Only real tokens count.
    """
    draw, gaps = torch.Generator().manual_seed(0), [0.0]
    for count, read, wrote in CHECKED:
        read, wrote = min(read, longest), min(wrote, longest)
        tokens = torch.randint(1, vocabulary, (count, read), generator=draw)
        lengths = torch.randint(1, read + 1, (count,), generator=draw)
        lengths[0] = read
        real = torch.arange(read) < lengths[:, None]
        tokens = tokens * real
        target = torch.randint(1, vocabulary, (count, wrote), generator=draw)
        target[:, 0] = 0
        with torch.no_grad():
            if isinstance(network, GPT):
                expected = network.to_logits(network(tokens))
                outputs = continued(sessions["decoder"], tokens, {}, real.long())
            elif isinstance(network, Transformer | T5 | Seq2Seq):
                states = network(tokens, lengths, target)
                expected = network.to_logits(states)
                outputs = written(sessions, network, tokens, lengths, target)
                real = torch.ones_like(target, dtype=torch.bool)
            else:
                inputs = {"tokens": tokens, "lengths": lengths, "types": torch.zeros_like(tokens)}
                outputs = sessions["model"](inputs)["logits"]
                expected = network(tokens, lengths)
                if isinstance(network, BERT) and hasattr(network, "head"):
                    expected = network.to_logits(expected)
        if expected.ndim == 3:
            expected, outputs = expected[real], outputs[real]
        gap = (expected - outputs).abs().max() / expected.abs().max().clamp(min=1)
        gaps.append(float(gap) if gap.isfinite() else torch.inf)
    return max(gaps)
