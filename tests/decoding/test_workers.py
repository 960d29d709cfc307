import threading
import time

import pytest
import torch

from regard.attention.kernels.choose import asked, use
from regard.decoding import beam, side_by_side
from tests.decoding.writers import END, make, sources


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_batches_run_side_by_side_with_one_thread_each_and_come_in_order(threads):
    meeting = threading.Barrier(3)

    def write(batch: int) -> tuple[int, int, object, object]:
        meeting.wait(10)  # nobody passes alone
        return batch, torch.get_num_threads(), torch.is_autocast_enabled("cpu"), asked()

    with torch.autocast("cpu", torch.bfloat16), use("exact"):
        found = side_by_side(write, [5, 3, 4])
    assert found == [(batch, 1, True, "exact") for batch in (5, 3, 4)]
    assert torch.get_num_threads() == 3


def test_a_worker_that_fails_says_so(threads):
    def write(batch: int) -> float:
        return 1 / batch

    with pytest.raises(ZeroDivisionError):
        side_by_side(write, [1, 0, 2])
    assert torch.get_num_threads() == 3


def test_after_a_failure_no_other_batch_begins(threads):
    failed, begun = threading.Event(), []

    def write(batch: int) -> None:
        begun.append(batch)
        if batch == 0:
            failed.set()
            raise ValueError("the first")
        assert failed.wait(10)
        time.sleep(0.2)  # the failure is told meanwhile

    with pytest.raises(ValueError, match="the first"):
        side_by_side(write, range(100))
    assert len(begun) < 20


def test_one_thread_or_one_batch_has_no_workers(threads):
    here = threading.get_ident()
    assert side_by_side(lambda _: threading.get_ident(), [1]) == [here]
    torch.set_num_threads(1)
    assert side_by_side(lambda _: threading.get_ident(), [1, 2]) == [here, here]


def test_the_same_texts_as_one_after_the_other(threads):
    model, (source, lengths) = make("sinusoidal, pre"), sources()

    def write(row: int):
        (texts,) = beam(model, source[row : row + 1], lengths[row : row + 1], end=END)
        return [text.tokens for text in texts]

    assert side_by_side(write, range(5)) == [write(row) for row in range(5)]
