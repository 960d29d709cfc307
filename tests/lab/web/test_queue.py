"""The line before the models: its bound, its batches, and those who leave it."""

import threading
import time
from typing import Any

import pytest

from regard.lab.web.limits import Limits
from regard.lab.web.queue import Job, Queue
from regard.lab.web.refusal import RefusedError


def held(queue: Queue) -> threading.Event:
    """Keep the thread busy until the event is set."""
    free, busy = threading.Event(), threading.Event()

    def work(given: list[Any]) -> list[Any]:
        busy.set()
        free.wait(5)
        return given

    queue.put(Job(0, work))
    assert busy.wait(5)
    return free


def test_equal_work_is_one_call_in_order() -> None:
    queue, calls = Queue(Limits(batch=4)), []

    def work(given: list[int]) -> list[int]:
        calls.append(given)
        return [10 * x for x in given]

    free = held(queue)
    jobs = [queue.put(Job(i, work, together="same")) for i in range(6)]
    other = queue.put(Job(9, work, together="other"))
    free.set()
    assert [job.answer.result(5) for job in jobs] == [0, 10, 20, 30, 40, 50]
    assert other.answer.result(5) == 90
    assert calls == [[0, 1, 2, 3], [4, 5], [9]]


def test_one_that_fails_spoils_no_other() -> None:
    queue = Queue(Limits())

    def work(given: list[int]) -> list[int]:
        if 1 in given:
            raise ValueError("one")
        return given

    free = held(queue)
    jobs = [queue.put(Job(i, work, together="same")) for i in range(3)]
    free.set()
    assert jobs[0].answer.result(5) == 0
    assert isinstance(jobs[1].answer.exception(5), ValueError)
    assert jobs[2].answer.result(5) == 2


class PanicError(BaseException):
    """What `tokenizers` raises where its Rust panics is no `Exception` either."""


@pytest.mark.parametrize("raised", [PanicError("index 9"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("told", [None, print])
def test_nothing_that_is_raised_ends_the_thread(raised: BaseException, told: Any) -> None:
    queue = Queue(Limits())

    def work(given: list[int]) -> list[int]:
        raise raised

    error = queue.put(Job(1, work, on_piece=told)).answer.exception(5)
    assert isinstance(error, RuntimeError)
    assert type(raised).__name__ in str(error)
    assert queue.put(Job(2, lambda given: given)).answer.result(5) == 2
    assert queue.restarts == 0


def test_an_asker_who_cannot_be_told_ends_no_other() -> None:
    queue = Queue(Limits())

    def tell(piece: int) -> None:
        raise PanicError("gone")

    broken = queue.put(Job(0, lambda given: [1, 2], on_piece=tell))
    short = queue.put(Job(0, lambda given: []))  # no answer to its one question
    assert "gone" in str(broken.answer.exception(5))
    assert isinstance(short.answer.exception(5), ValueError)
    assert queue.put(Job(2, lambda given: given)).answer.result(5) == 2
    assert (queue.restarts, queue.length) == (2, 0)


def test_a_thread_that_died_is_begun_again() -> None:
    queue = Queue(Limits())
    queue._thread = threading.Thread()  # never begun: as good as dead
    assert queue.put(Job(2, lambda given: given)).answer.result(5) == 2
    assert queue.restarts == 1


def test_a_full_line_says_when_to_come_again() -> None:
    queue = Queue(Limits(queue=3))
    free = held(queue)
    waiting = [queue.put(Job(i, list)) for i in range(2)]
    with pytest.raises(RefusedError) as refused:
        queue.put(Job(3, list))
    assert refused.value.status == 503
    assert int(refused.value.headers["Retry-After"]) >= 1
    queue.leave(waiting[0])
    queue.put(Job(4, list)).told = None
    assert queue.length == 3
    free.set()


def test_who_waited_too_long_is_told_and_not_worked_for() -> None:
    queue, worked = Queue(Limits(deadline=0.05)), []
    free = held(queue)
    job = queue.put(Job(1, lambda given: worked.append(given) or given))
    time.sleep(0.1)
    free.set()
    with pytest.raises(RefusedError) as refused:
        job.answer.result(5)
    assert refused.value.status == 504
    assert worked == []
    assert queue.late == 1


def test_pieces_take_turns_with_other_work() -> None:
    queue, order = Queue(Limits()), []
    free = held(queue)
    told = queue.put(Job(None, lambda _: iter("abc"), on_piece=order.append))
    plain = [queue.put(Job(i, lambda given: [order.append(given[0])])) for i in range(2)]
    free.set()
    assert told.answer.result(5) is None
    assert [job.answer.done() for job in plain] == [True, True]
    assert order == ["a", 0, 1, "b", "c"]


def test_a_told_job_stops_when_its_asker_leaves() -> None:
    queue, told = Queue(Limits()), []

    def forever(_: Any) -> Any:
        while True:
            time.sleep(0.001)
            yield 1

    job = queue.put(Job(None, forever, on_piece=told.append))
    time.sleep(0.05)
    queue.leave(job)
    time.sleep(0.05)
    seen = len(told)
    time.sleep(0.05)
    assert len(told) == seen > 0
    assert queue.length == 0


def test_a_closed_line_takes_no_more_and_answers_what_it_has() -> None:
    queue = Queue(Limits())
    free = held(queue)
    job = queue.put(Job(7, list))
    queue.close()
    with pytest.raises(RefusedError):
        queue.put(Job(8, list))
    free.set()
    queue.join(5)
    assert job.answer.result(0) == 7


@pytest.mark.parametrize("kind", ["answer", "error", "pieces"])
def test_who_is_answered_stands_in_no_line(kind: str) -> None:
    queue, seen = Queue(Limits()), []

    def work(given: list[Any]) -> Any:
        if kind == "error":
            raise ValueError(given)
        return given if kind == "answer" else iter("ab")

    free = held(queue)
    job = Job(1, work, on_piece=(lambda _: None) if kind == "pieces" else None)
    job.answer.add_done_callback(lambda _: seen.append(queue.length))
    queue.put(job)
    free.set()
    job.answer.exception(5)
    assert seen == [0]
