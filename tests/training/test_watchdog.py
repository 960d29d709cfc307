"""Processes that watch each other, here two watchdogs on one store in one process."""

import pytest
from torch.distributed import TCPStore

from regard.training import watchdog
from regard.training.watchdog import Watchdog


@pytest.fixture
def store() -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


@pytest.fixture
def pair(store: TCPStore) -> list[Watchdog]:
    """Return the watchdogs of ranks 0 and 1, whose threads are not started."""
    return [Watchdog(store, rank, 2) for rank in range(2)]


def test_the_first_process_collects_the_texts_of_all(pair: list[Watchdog]) -> None:
    first, second = pair
    assert second.collect("names", "b") == []
    assert first.collect("names", "a") == ["a", "b"]


def test_a_neighbour_without_heartbeat_is_the_reason(
    pair: list[Watchdog], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    monkeypatch.setattr(watchdog, "BEAT", 0.01)
    monkeypatch.setattr(watchdog, "STALE", 0.1)
    reasons: list[str] = []

    def end(reason: str) -> None:
        reasons.append(reason)
        first.leaving.set()

    monkeypatch.setattr(first, "end", end)
    first.run()
    assert reasons == ["rank 1 died or was stopped: no sign of life for 0 s"]
    assert second.reason(second.main) == reasons[0]
    assert second.report(RuntimeError("Connection closed by peer")) == reasons[0]


def test_the_first_reason_stays(pair: list[Watchdog]) -> None:
    first, second = pair
    assert first.report(ValueError("no such file")) == ""
    assert second.report(KeyError("a")) == "rank 0: ValueError: no such file"
