"""How long jobs will take yet."""

import pytest

from regard.lab.studies.eta import Running, seconds_left


def test_unlike_arms_are_each_reckoned_by_their_own() -> None:
    running = [Running("slow", 4.0, elapsed=100.0, done=0.25), Running("quick", 1.0, 5.0, 0.5)]
    waiting = [("slow", 4.0), ("quick", 1.0)]
    # 300 and 5 of those that run, 400 and 10 of those that wait, on two processes
    assert seconds_left(running, waiting, {}, workers=2) == 400.0
    assert seconds_left(running, waiting, {}, workers=1) == 715.0
    # what the arm's last one took is better known than what this one is on the way to
    assert seconds_left(running, waiting, {"slow": 500.0}, workers=1) == 400 + 5 + 500 + 10


def test_an_arm_that_has_not_begun_takes_what_its_cost_says() -> None:
    running = [Running("known", 2.0, elapsed=10.0, done=0.5)]
    assert seconds_left(running, [("new", 6.0)], {}, workers=1) == 10.0 + 60.0
    assert seconds_left([], [("new", 6.0)], {"gone": 3.0}, workers=1) is None  # of no known cost


def test_what_an_earlier_process_did_is_no_speed_of_this_one() -> None:
    resumed = Running("arm", 1.0, elapsed=10.0, done=0.9, before=0.8)
    assert seconds_left([resumed], [], {}, workers=2) == pytest.approx(10.0)


def test_the_start_of_a_job_is_no_part_of_its_speed() -> None:
    begun = Running("arm", 1.0, elapsed=6.0, done=0.3, before=0.1, begun=5.0)
    assert seconds_left([begun], [], {}, workers=1) == pytest.approx(3.5)
    # another one that waits starts as well
    assert seconds_left([begun], [("arm", 1.0)], {}, workers=1) == pytest.approx(3.5 + 10)


def test_a_job_longer_than_the_last_ends_soon_and_nothing_is_left_of_nothing() -> None:
    late = Running("arm", 1.0, elapsed=50.0, done=0.9)
    assert seconds_left([late], [], {"arm": 40.0}, workers=1) == 0.0
    assert seconds_left([], [], {"arm": 40.0}, workers=1) == 0.0
    assert seconds_left([Running("arm", 1.0, elapsed=1.0, done=0.0)], [], {}, workers=1) is None


def test_baselines_that_cost_nothing_leave_the_rest_unknown_and_then_do_not_count() -> None:
    assert seconds_left([Running("tfidf", 0.0, 1.0, 0.0)], [("cnn", 2.0)], {}, workers=1) is None
    assert seconds_left([Running("tfidf", 0.0, 1.0, 0.0)], [], {}, workers=1) == 0.0
