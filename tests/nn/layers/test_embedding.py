from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.core.errors import RegardError
from regard.lab.data.tokenizers import PAD as DATA_PAD
from regard.lab.data.tokenizers import UNKNOWN as DATA_UNKNOWN
from regard.nn.layers.embedding import PAD, UNKNOWN, WordEmbedding, inside


@dataclass
class Pretrained:
    matrix: np.ndarray
    ids: np.ndarray


def pretrained(ids: list[int], width: int = 5) -> Pretrained:
    matrix = np.random.default_rng(0).normal(0, 0.5, (len(ids), width)).astype(np.float32)
    return Pretrained(matrix, np.array(ids))


def test_the_two_special_tokens_are_the_tokenizers() -> None:
    assert (PAD, UNKNOWN) == (DATA_PAD, DATA_UNKNOWN)


def test_inside() -> None:
    expected = [[True, True, False], [False] * 3, [True] * 3]
    assert inside(torch.tensor([2, 0, 3]), 3).tolist() == expected


def test_padding_is_zero_whatever_stands_there() -> None:
    torch.manual_seed(0)
    embedding = WordEmbedding(11, 5)
    tokens, lengths = torch.tensor([[4, 7, 9], [3, 2, 10]]), torch.tensor([3, 1])
    vectors = embedding(tokens, lengths)
    assert_close(vectors[0], embedding.weight[tokens[0]])
    assert_close(vectors[1, 0], embedding.weight[3])
    assert vectors[1, 1:].count_nonzero() == 0


def test_the_padding_row_is_never_trained() -> None:
    torch.manual_seed(0)
    embedding = WordEmbedding(11, 5, word_dropout=0.3, dropout=0.2)
    optimizer = torch.optim.AdamW(embedding.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (embedding(torch.tensor([[4, 0, 6]]), torch.tensor([3])) + 1).square().sum().backward()
        optimizer.step()
    assert embedding.weight[PAD].count_nonzero() == 0


def test_first_values_have_the_asked_spread() -> None:
    torch.manual_seed(0)
    weight = WordEmbedding(4_001, 25, init_std=0.3).weight
    assert weight.std().item() == pytest.approx(0.3, rel=0.01)


def test_pretrained_rows_and_their_width() -> None:
    torch.manual_seed(0)
    vectors = pretrained([7, 3, 10])
    embedding = WordEmbedding(4_001, 9, init_std=0.3, vectors=vectors)
    assert embedding.width == 5
    scale = 0.3 / float(np.sqrt(np.mean(vectors.matrix**2)))
    found = embedding.weight[[7, 3, 10]].detach()
    assert_close(found, torch.from_numpy(vectors.matrix * np.float32(scale)))
    assert embedding.weight[11:].std().item() == pytest.approx(0.3, rel=0.02)
    assert embedding.weight.requires_grad


def test_none_found_is_no_harm() -> None:
    embedding = WordEmbedding(7, 5, vectors=pretrained([]))
    assert embedding.weight.isfinite().all()


def test_vectors_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(
        RegardError, match="word id 12 of the vectors exceeds the vocabulary's last id, 10"
    ):
        WordEmbedding(11, 5, vectors=pretrained([3, 12]))


def test_word_dropout_loses_whole_words_in_training_only() -> None:
    torch.manual_seed(0)
    embedding = WordEmbedding(11, 5, word_dropout=0.25)
    tokens = torch.full((40, 50), 6)
    lengths = torch.full((40,), 45)
    vectors = embedding(tokens, lengths)
    lost = (vectors == embedding.weight[UNKNOWN]).all(-1)
    kept = (vectors == embedding.weight[6]).all(-1)
    assert (lost | kept)[:, :45].all()
    assert not (lost | kept)[:, 45:].any()
    assert lost[:, :45].float().mean().item() == pytest.approx(0.25, abs=0.03)
    embedding.eval()
    assert_close(embedding(tokens, lengths)[:, :45], embedding.weight[tokens[:, :45]])
