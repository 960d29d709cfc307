"""One vector for each text, from the states of a run's network."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.lab.runs.run import Run
from regard.lab.tasks.texts import NO_TREES
from regard.nn.layers.device import device_of, evaluation_mode
from regard.nn.layers.pooling import mean_over_time
from regard.training.batches import pad, sorted_batches

Embed = Callable[[Tensor, Tensor], Tensor]


def embed(run: Run, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return an embedding of each text, (texts, width), in the order of the texts.

    * Classifiers, regressors and solvers: the pooled vector that the last layer reads.
    * Without a pool (taggers): the mean of the states, (1/n) Σ hᵢ over the n tokens of the text.
    * Models that write (`encode`): the mean of the encoder's states.
    * GPT and BERT in pretraining: the mean of the last layer's states.

    Texts are truncated as for the model. The mean of a text without tokens is zero. Raises: an
    incomplete run; a baseline or another model without states; a model that reads trees.
    """
    if run.config.entry.baseline:
        raise RegardError(
            f"{run.config.model} is a baseline without states, so it has no embeddings; use a run "
            "of a network, such as transformer or rnn"
        )
    if run.config.reads_trees:
        raise RegardError(NO_TREES.format(run.config.model))
    network, vectors = run.network, _embedder(run)
    ids = _ids(run, texts)
    lengths = [len(each) for each in ids]
    rows: NDArray[np.float32] | None = None
    with run.computing(), evaluation_mode(network):
        device = device_of(network)
        for indexes in sorted_batches(lengths, device.type):
            tokens, sizes = pad([ids[index] for index in indexes])
            part = vectors(tokens.to(device), sizes.to(device)).float().cpu().numpy()
            rows = np.zeros((len(ids), part.shape[1]), np.float32) if rows is None else rows
            rows[indexes] = part
    return np.zeros((0, 0), np.float32) if rows is None else rows


def _ids(run: Run, texts: Sequence[str]) -> list[NDArray[np.integer]]:
    """Return the tokens that the network reads of each text, up to its length."""
    if hasattr(run.network, "to_labels"):
        return list(run.task.encode(texts))
    most = int(getattr(run.config.network, "length", 0)) or None
    return [np.asarray(run.task.whole(text)[:most], np.int64) for text in texts]


def _embedder(run: Run) -> Embed:
    """Return the function of (tokens, lengths) that computes the vectors of a network."""
    network = run.network
    if isinstance(last := getattr(network, "to_labels", None), nn.Module):
        return lambda tokens, lengths: _read_by(last, network, tokens, lengths)
    encoder = getattr(network, "encode", None)
    if callable(encoder):
        return lambda tokens, lengths: _mean(encoder(tokens, lengths), lengths)
    if not hasattr(network, "to_logits"):
        raise RegardError(
            f"{run.config.model} has neither to_labels nor encode, so its states are not known; "
            "use a run of a text classifier, an encoder-decoder, GPT or BERT"
        )
    return lambda tokens, lengths: _mean(network(tokens, lengths), lengths)


def _read_by(last: nn.Module, network: nn.Module, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Return the last layer's input, or its mean over tokens if the layer reads each state."""
    read: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    try:
        network(tokens, lengths)
    finally:
        handle.remove()
    (states,) = read
    return _mean(states, lengths) if states.dim() == 3 else states


def _mean(states: Tensor, lengths: Tensor) -> Tensor:
    """Return the mean of the states of each text, ignoring padding."""
    return mean_over_time(states.float().nan_to_num(), lengths)
