"""A run as a folder of ONNX graphs, which onnxruntime and tokenizers run without torch."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.interop.card import Card, plain, table
from regard.interop.folder import as_json, must_be_new, write_files
from regard.interop.onnx_graphs import (
    Graph,
    OnnxNetwork,
    Session,
    graphs_of,
    in_int8,
    largest_gap,
    plain_graph,
    runtime,
)
from regard.interop.tokenizer_files import with_ends
from regard.lab.data.encoder_tokenizer import EncoderTokenizer
from regard.lab.runs.run import Run
from regard.nn.models.seq2seq import Seq2Seq

TOLERANCE = 1e-4  # of the logits; a share of the largest, or absolute where that is below 1


def save_onnx(
    run: Run, folder: Path, card_of: Callable[[Run], Card], *, int8: bool = False
) -> Path:
    """Write ``model.onnx``, or ``encoder.onnx`` and ``decoder.onnx``, with the files to use them.

    ``tokenizer.json`` is for tokenizers, ``config.json`` has labels, lengths and symbols, and the
    README a script that runs the graphs. Each graph is compared with the network on texts of three
    sizes; with ``int8`` it is then rounded, and if it labels texts the card has its test metrics.
    Raises: an existing folder; a network that torch cannot trace; different logits; nothing to
    round.
    """
    must_be_new(folder)
    network, vocabulary = run.network.cpu().float(), int(run.task.sizes["vocabulary"])
    graphs, gap = _compared(network, graphs_of(network), vocabulary, run.task.room, int8)
    config = {"task": run.config.task, "model": run.config.model, **run.task.exported()}
    measured = run
    if int8 and can_run(run):
        measured = _answering(run, network=OnnxNetwork(graphs["model"]))
    readme = readme_of(run, config, card_of(measured), gap)
    return write_files(
        folder,
        {
            **{f"{name}.onnx": data for name, data in graphs.items()},
            "tokenizer.json": tokenizer_of(run),
            "config.json": as_json(config),
            "README.md": readme.encode(),
        },
    )


def _compared(
    network: nn.Module, graphs: Sequence[Graph], vocabulary: int, longest: int, int8: bool
) -> tuple[dict[str, bytes], float]:
    """Return graphs as bytes, and the largest difference of logits. Raises: different logits."""
    written = {graph.name: graph.to_bytes() for graph in graphs}

    def gap_of(graphs: Mapping[str, bytes]) -> float:
        sessions = {name: Session(data) for name, data in graphs.items()}
        return largest_gap(network, sessions, vocabulary, longest)

    gap = gap_of(written)
    if gap > TOLERANCE:
        raise RegardError(
            f"onnxruntime's logits differ by {gap:.1e} from those of the network; ONNX changes one "
            "of its scores or positions, so nothing was written"
        )
    if not int8:
        return written, gap
    rounded = {name: in_int8(data) for name, data in written.items()}
    if rounded == written:
        raise RegardError("no layer multiplies each token by weights, so int8 would change nothing")
    return rounded, gap_of(rounded)


class OnnxRun(Run):
    """A run whose answers are computed by onnxruntime, those to its test split anew."""

    @cached_property
    def _tested(self) -> Any:
        with self.computing():
            return self.task.answer(self.model)


def through_onnx(run: Run, *, int8: bool = False) -> Run:
    """Return a run whose predictions are computed by onnxruntime, with ``int8`` by `in_int8`.

    Its graph is written once, into ``onnx/`` of the run's folder, and compared with the network as
    by `save_onnx`. For the arm ``sentence`` it is the encoder's; only predictions and evaluations
    use it, since attention and gradients need the network.

    Raises: onnxruntime is not installed; a run that generates texts; a baseline without an encoder;
    as `save_onnx`.
    """
    runtime()
    run.must_be_complete()
    if not can_run(run):
        raise RegardError(
            f"--onnx and --int8 run networks that label texts, not {run.config.model} on "
            f"{run.config.task}; leave them out"
        )
    encoder = run.baseline.encoder if run.config.entry.baseline else None
    weights = encoder.fingerprint if encoder else run.folder.sha256(run.folder.weights)
    place = run.folder.path / "onnx" / f"{weights[:16]}{'-int8' if int8 else ''}"
    if not place.exists():
        network = (encoder.body if encoder else run.network).cpu().float()
        words = encoder.body.embedding.num_embeddings if encoder else run.task.sizes["vocabulary"]
        longest = (encoder.reading.length or 512) if encoder else run.task.room
        graphs, _ = _compared(network, [plain_graph(network)], int(words), longest, int8)
        atomic_io.write_folder(place, {f"{name}.onnx": data for name, data in graphs.items()})
    network = OnnxNetwork(atomic_io.read_folder(place)["model.onnx"])
    if not encoder:
        return _answering(run, network=network)
    encoder.body = network
    vars(encoder)["fingerprint"] = f"{encoder.fingerprint} {place.name}"  # vectors kept apart
    return _answering(run, baseline=run.baseline)


def _answering(run: Run, **model: Any) -> OnnxRun:
    """Return the run with another ``network`` or ``baseline``."""
    answering = OnnxRun(run.folder.path, run.config)
    vars(answering).update(task=run.task, **model)
    return answering


def can_run(run: Run) -> bool:
    """Return whether `through_onnx` supports a run: its network labels texts in one pass."""
    if run.config.entry.baseline:
        return run.config.model == "sentence"
    interface = run.config.unread_task.interface
    return (interface.form, interface.outputs) == ("reads", "labels") and not run.config.reads_trees


def tokenizer_of(run: Run) -> bytes:
    """Return ``tokenizer.json``; characters are joined without spaces."""
    tokenizer = run.task.tokenizer
    if isinstance(tokenizer, EncoderTokenizer):
        return tokenizer.to_bytes()
    return str(with_ends(tokenizer, []).to_str(pretty=True)).encode()


def readme_of(run: Run, config: Mapping[str, Any], card: Card, gap: float) -> str:
    """Return the README: a script that runs the graphs, data and results of the run."""
    lines = [f"# {plain(card.title)}", "", "Written by regard as ONNX graphs, which need neither "
             "torch nor regard: `pip install onnxruntime tokenizers numpy`.", ""]  # fmt: skip
    lines += ["```python", *script_of(run, config).strip().splitlines(), "```", ""]
    lines += [f"The logits of three batches differ by at most {gap:.0e} from those of torch.", ""]
    lines += table("Trained on", card.trained) + table("Measured", card.measured)
    return "\n".join(lines + [line for note in card.notes for line in (plain(note), "")])


def script_of(run: Run, config: Mapping[str, Any]) -> str:
    """Return the script for the kind of network and task of a run."""
    cut = {"head": "ids[:length]", "tail": "ids[-length:]"}
    cut["ends"] = "ids if len(ids) <= length else ids[: -(-length // 2)] + ids[-(length // 2) :]"
    read, tags = (part.replace("CUT", cut[config["truncate"]]) for part in (READ, TAGS))
    joins = "' ' * (i > 0)" if config.get("spaced") else "''"
    tags = tags.replace("JOIN", joins)
    if isinstance(run.network, Seq2Seq):
        return read + ENCODE + RECURRENT
    if "end" in config:
        return read + (ENCODE if hasattr(run.network, "encoder") else PROMPT) + WRITE
    if "mean" in config:
        return read + NUMBERS
    if "labels" in config:
        if "thresholds" in config:
            return read + LABELS.replace(SOFTMAX, SIGMOID)
        return read + (tags if run.task.interface.each == "token" else LABELS)
    return read + MASKED


READ = '''
import json
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

folder = Path(".")  # of this file
config = json.loads((folder / "config.json").read_text("utf-8"))
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.encode_special_tokens = True  # a symbol spelt out in a text is split like any word
length = config["length"]


def graph(name):
    return onnxruntime.InferenceSession(str(folder / f"{name}.onnx"))


def read(text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return CUT


def batch(rows):
    """Token ids and lengths; 0 is padding."""
    lengths = np.array([len(ids) for ids in rows])
    tokens = np.zeros((len(rows), max(1, lengths.max())), np.int64)
    for row, ids in zip(tokens, rows):
        row[: len(ids)] = ids
    return {"tokens": tokens, "lengths": lengths}


def run(session, inputs):
    known = {entry.name for entry in session.get_inputs()}
    names = [entry.name for entry in session.get_outputs()]
    given = {name: array for name, array in inputs.items() if name in known}
    return dict(zip(names, session.run(None, given)))
'''

SOFTMAX = """    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
"""
SIGMOID = """    shares = 1 / (1 + np.exp(-logits.astype(np.float64)))
"""
LABELS = '''

def predict(texts):
    """Return the probability of each label for each text."""
    logits = run(model, batch([read(text) for text in texts]))["logits"]
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return [dict(zip(config["labels"], row)) for row in shares.tolist()]


model = graph("model")
print(predict(["not bad at all"]))
'''

NUMBERS = '''

def predict(texts):
    """Return a number for each text."""
    logits = run(model, batch([read(text) for text in texts]))["logits"]
    return (config["mean"] + config["deviation"] * logits[:, 0]).tolist()


model = graph("model")
print(predict(["not bad at all"]))
'''

TAGS = '''

def pieces(words):
    """Return pairs: a token and the number of its word."""
    texts = [JOIN + word for i, word in enumerate(words)]
    rows = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return [(token, i) for i, row in enumerate(rows) for token in row or [config["empty"]]]


def predict(words):
    """Return a tag for each word; its logits are the mean over its tokens."""
    ids = pieces(words)
    ids = CUT
    logits, tags = run(model, batch([[token for token, _ in ids]]))["logits"][0], []
    for i in range(len(words)):
        part = logits[[place for place, (_, word) in enumerate(ids) if word == i]]
        tags.append(config["labels"][part.mean(0).argmax()] if len(part) else None)
    return tags


model = graph("model")
print(predict(["Ada", "Lovelace", "was", "born", "in", "London", "."]))
'''

MASKED = '''

def predict(ids, place):
    """Return the five likeliest token ids at a masked place."""
    ids = [*ids[:place], config["mask"], *ids[place + 1 :]]
    ids = [config["classify"], *ids, config["separator"]]
    inputs = batch([ids])
    inputs["types"] = np.zeros_like(inputs["tokens"])
    return np.argsort(-run(model, inputs)["logits"][0, place + 1])[:5].tolist()


model = graph("model")
print(predict(read("not bad at all"), 1))
'''

PROMPT = '''

def begin(text):
    """Return the first tokens, the constant inputs of each step, and an empty past."""
    inputs = decoder.get_inputs()
    past = {x.name: np.zeros([1 if i == 0 else 0 if isinstance(n, str) else n
                              for i, n in enumerate(x.shape)], np.float32)
            for x in inputs if x.name.startswith("past.")}
    return read(text) or [0], {}, past


decoder = graph("decoder")
'''

ENCODE = '''

def begin(text):
    """Return the first token, the constant inputs of each step, and an empty past."""
    source = batch([read(text)])
    memory = {**run(encoder, source), "lengths": source["lengths"]}
    past = {x.name: np.zeros([1 if i == 0 else 0 if isinstance(n, str) else n
                              for i, n in enumerate(x.shape)], np.float32)
            for x in decoder.get_inputs() if x.name.startswith("past.")}
    return [0], memory, past


encoder, decoder = graph("encoder"), graph("decoder")
'''

WRITE = '''

def write(text, most=50):
    """Return the likeliest continuation, token by token; a step reads only the new tokens."""
    new, memory, past = begin(text)
    written, count = [], 0
    most = min(most, config.get("context", most + len(new)) - len(new) + 1)
    while len(written) < most:
        count += len(new)
        every = np.arange(count)[None]  # with padding: positions of real tokens, visible = 0
        step = {"tokens": np.array([new]), "positions": every, "visible": np.ones_like(every)}
        answer = run(decoder, {**step, **memory, **past})
        logits = answer.pop("logits")[0, -1]
        logits[0] = -np.inf  # padding
        new = [int(logits.argmax())]
        if new[0] == config["end"]:
            break
        written += new
        past = {name.replace("present.", "past."): array for name, array in answer.items()}
    return tokenizer.decode(written)


print(write("not bad at all"))
'''

RECURRENT = '''

def write(text, most=50):
    """Return the likeliest answer, token by token."""
    (new,), memory, _ = begin(text)
    written = []
    while len(written) < most:
        answer = run(decoder, {"tokens": np.array([[new]]), **memory})
        memory["state"] = answer["next_state"]
        logits = answer["logits"][0, -1]
        logits[0] = -np.inf  # padding
        new = int(logits.argmax())
        if new == config["end"]:
            break
        written.append(new)
    return tokenizer.decode(written)


print(write("not bad at all"))
'''
