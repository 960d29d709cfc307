import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import RegardError
from regard.training.checkpoints import Checkpoints, weights
from regard.training.clock import follow_the_clock
from regard.training.learnable import Learnable
from regard.training.loop import GAINS, Progress, Training, fitting_batch, step_seed, train
from regard.training.precision import Precision, choose_precision
from regard.training.settings import (
    FEW_BETWEEN,
    LEAST_BETWEEN,
    LEAST_STEPS,
    MOST_STEPS,
    MOST_TOKENS,
    TrainingSettings,
)

from .toys import Bag, Toy


def settings(**changes: Any) -> TrainingSettings:
    values = {"epochs": 3, "batch_tokens": 40, "learning_rate": 0.05, "threads": 1, **changes}
    return TrainingSettings(**values)


def same(here: torch.nn.Module, there: torch.nn.Module) -> bool:
    ours, theirs = weights(here), weights(there)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)


def run(model: Bag, checkpoints: Checkpoints | None = None, **changes: Any) -> list[Progress]:
    return list(train(model, Toy(), settings(**changes), checkpoints))


def test_it_learns_the_toy() -> None:
    model = Bag()
    told = run(model, epochs=20, learning_rate=0.1)
    assert told[0].loss > 0.5
    assert told[-1].best is not None
    assert told[-1].best > 0.9
    assert told[-1].step == told[-1].steps == len(told)
    assert told[-1].epoch == 20
    assert told[-1].seconds_left == 0
    assert not model.training


def test_same_settings_same_bits_and_another_seed_others() -> None:
    first, second, third = Bag(), Bag(), Bag()
    run(first)
    torch.rand(7)  # the caller's random numbers are not the training's
    run(second)
    run(third, seed=1)
    assert same(first, second)
    assert not same(first, third)


def test_the_callers_random_numbers_are_left_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    run(Bag())
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize("stop", [1, 4, 9, 10, 17])
def test_resume_reaches_the_same_bits(tmp_path: Path, stop: int) -> None:
    whole = Bag()
    told = run(whole)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    for _ in islice(train(Bag(), Toy(), settings(save_every=3), checkpoints), stop):
        pass
    resumed = Bag(seed=99)  # its first weights must not matter
    rest = run(resumed, checkpoints, save_every=3) if stop >= 4 else run(resumed := Bag())
    assert same(whole, resumed)
    assert rest[-1].step == told[-1].step
    assert rest[-1].loss == told[-1].loss
    assert rest[-1].best == told[-1].best
    if stop >= 4:
        saved = (stop - 1) // 3 * 3  # a save follows its step, once the caller asks for more
        assert rest[0].step == saved + 1
        assert rest[0].note == f"Resumed from step {saved}."
        assert rest[1].note == ""


def test_the_running_mean_is_what_is_judged_and_kept(tmp_path: Path) -> None:
    plain, model = Bag(), Bag()
    asked = settings(average=0.8, evaluate_every=100, epochs=2)
    training = Training(model, Toy(), asked, Precision("fp32", "asked for"))
    mean = weights(model)
    for step, _ in enumerate(training.run(), 1):  # the trained weights themselves, beside it
        keep = min(0.8, (1 + step) / (10 + step))
        now = weights(model)
        mean = {k: keep * mean[k] + (1 - keep) * now[k] for k in mean}
    torch.testing.assert_close(weights(model), mean)
    run(plain, epochs=2, evaluate_every=100)
    assert not same(plain, model)


class Counted(Bag):
    """Counts its forward passes in training, as a BatchNorm counts batches."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def forward(self, *given: Any) -> torch.Tensor:
        self.passes += self.training
        return super().forward(*given)


def test_the_running_mean_has_the_buffers_of_the_trained_network() -> None:
    plain, model = Counted(), Counted()
    run(plain, epochs=2, evaluate_every=100)
    run(model, epochs=2, evaluate_every=100, average=0.8)
    assert model.passes == plain.passes > 0


def test_a_running_mean_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole, resumed = Bag(), Bag(seed=99)
    run(whole, average=0.8)
    checkpoints = Checkpoints(tmp_path)
    stopped = settings(average=0.8, save_every=3)
    for _ in islice(train(Bag(), Toy(), stopped, checkpoints), 9):
        pass
    run(resumed, checkpoints, average=0.8, save_every=3)
    assert same(whole, resumed)


class Layered(Bag):
    """A bag with two layers on its embedding, for an optimizer that asks for layers."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(5, 5) for _ in range(2))

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens).sum(1) / lengths[:, None]
        for layer in self.layers:
            x = x + layer(x).tanh()
        logits: torch.Tensor = self.to_logits(self.dropout(self.norm(x))).float()
        return logits


def test_muon_learns_and_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole, resumed, plain = Layered(), Layered(seed=99), Layered()
    told = run(whole, optimizer="muon", epochs=12, learning_rate=0.1)
    assert told[-1].best is not None
    assert told[-1].best > 0.9
    checkpoints = Checkpoints(tmp_path)
    stopped = settings(optimizer="muon", epochs=12, learning_rate=0.1, save_every=3)
    for _ in islice(train(Layered(), Toy(), stopped, checkpoints), 9):
        pass
    run(resumed, checkpoints, optimizer="muon", epochs=12, learning_rate=0.1, save_every=3)
    assert same(whole, resumed)
    run(plain, epochs=12, learning_rate=0.1)
    assert not same(whole, plain)


def test_saving_changes_nothing(tmp_path: Path) -> None:
    plain, saving = Bag(), Bag()
    run(plain)
    run(saving, Checkpoints(tmp_path), save_seconds=1e-9, save_every=2)
    assert same(plain, saving)
    assert len(Checkpoints(tmp_path).steps()) == 2


def test_checkpoints_of_large_networks_are_rare_and_the_last_has_the_best_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interval(**given: Any) -> float:
        precision = choose_precision("fp32", "cpu")
        return Training(Bag(), Toy(), settings(**given), precision).save_seconds

    size = 4 * sum(x.numel() for x in Bag().parameters())
    assert interval() == 30
    monkeypatch.setattr("regard.training.loop.SAVE_RATE", size / 100)
    assert interval() == pytest.approx(400)
    assert interval(save_seconds=5) == 5
    checkpoints = Checkpoints(tmp_path)
    run(Bag(), checkpoints, save_every=2, average=0.5)
    earlier, last = checkpoints.steps()
    assert set(checkpoints.load(last).tensors) == {"best"}
    assert set(checkpoints.load(earlier).tensors) == {"best", "mean", "model", "optimizer"}


def test_a_finished_training_yields_nothing_more(tmp_path: Path) -> None:
    first, again = Bag(), Bag(seed=4)
    run(first, Checkpoints(tmp_path))
    assert run(again, Checkpoints(tmp_path)) == []
    assert same(first, again)


def test_damaged_newest_falls_back_with_a_word(tmp_path: Path) -> None:
    whole, resumed = Bag(), Bag(seed=4)
    run(whole)
    checkpoints = Checkpoints(tmp_path)
    for _ in islice(train(Bag(), Toy(), settings(save_every=3), checkpoints), 10):
        pass
    assert checkpoints.steps() == [6, 9]
    victim = tmp_path / "step-9" / "optimizer-1-of-1.safetensors"
    victim.write_bytes(victim.read_bytes()[:-1] + b"!")
    (tmp_path / ".step-12.partial").mkdir()
    told = run(resumed, checkpoints, save_every=3)
    assert told[0].step == 7
    assert "optimizer-1-of-1.safetensors differs" in told[0].note
    assert told[0].note.endswith("Resumed from step 6.")
    assert same(whole, resumed)
    assert (tmp_path / "step-9.damaged").is_dir()
    assert not list(tmp_path.glob(".*"))


def test_all_damaged_begins_anew(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for _ in islice(train(Bag(), Toy(), settings(save_every=3), checkpoints), 5):
        pass
    (tmp_path / "step-3" / "MANIFEST.json").unlink()
    told = run(Bag(), checkpoints, save_every=3)
    assert told[0].step == 1
    assert told[0].note.endswith("Training restarts from the beginning.")


@pytest.mark.parametrize(
    ("budget", "last"), [({"steps": 7}, 7), ({"tokens": 100}, 3), ({"epochs": 0.5}, None)]
)
def test_each_budget_ends_where_it_says(budget: dict[str, float], last: int | None) -> None:
    told = run(Bag(), **{"epochs": 0, **budget})
    if last is None:
        assert 0.5 <= told[-1].epoch < 0.7
    else:
        assert told[-1].step == last
    assert told[-1].validation is not None
    assert told[-1].learning_rate < told[len(told) // 2].learning_rate


def test_minutes_follow_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: Iterator[float] = (0.5 * n for n in range(10**6))
    monkeypatch.setattr("time.monotonic", lambda: next(ticks))
    told = run(Bag(), epochs=0, minutes=0.5)
    assert told[-1].seconds >= 30
    assert told[-2].seconds < 30
    assert told[-1].learning_rate < 0.15 * 0.05
    assert told[4].seconds_left == pytest.approx(30 - told[4].seconds)


def test_best_weights_come_back() -> None:
    toy = Toy()
    for rate in (0.5, 1.0, 2.0, 4.0, 8.0):  # which of them end below their best is the processor's
        model = Bag()
        told = run(model, epochs=30, learning_rate=rate, evaluate_every=1)
        validations = [p.validation for p in told if p.validation is not None]
        if validations[-1] < max(validations):
            break
    assert validations[-1] < max(validations)
    right = toy.predict(model, "validation").argmax(1) == toy.answers("validation")
    assert right.mean() == max(validations) == told[-1].best


def test_patience_ends_it() -> None:
    told = run(Bag(), epochs=500, evaluate_every=1, patience=4, learning_rate=0.3)
    tail = [p.validation for p in told[-4:]]
    assert len(told) < 300
    assert max(tail) <= told[-1].best
    assert max(p.validation for p in told[:-4]) >= told[-1].best - GAINS[0]
    least = min(p.validation_loss for p in told[:-4])
    assert min(p.validation_loss for p in told[-4:]) >= least - 2 * GAINS[1]
    assert told[-1].seconds_left == 0
    assert [p.ended for p in told[-2:]] == ["", "patience"]
    assert run(Bag(), epochs=0, steps=3)[-1].ended == "budget"


def test_at_a_perfect_score_a_falling_loss_is_no_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"epochs": 60, "evaluate_every": 1, "patience": 4, "learning_rate": 0.05}
    longer = run(Bag(), **asked)
    best = max(p.validation for p in longer)
    first = next(p.step for p in longer if p.validation == best)
    monkeypatch.setattr(Learnable, "perfect", best)
    told = run(Bag(), **asked)
    assert told[-1].ended == "patience"
    assert told[-1].step == first + 4 < longer[-1].step


def test_what_is_ended_before_its_budget_says_so_whatever_patience_is_left(tmp_path: Path) -> None:
    asked = settings(epochs=500, evaluate_every=1, patience=3, save_every=1)
    checkpoints = Checkpoints(tmp_path)
    training = Training(Bag(), Toy(), asked, Precision("fp32", "asked for"))
    for _ in islice(training.run(checkpoints), 3):
        pass
    training.state.worse, training.state.best = 2, 2.0  # nothing is as good as that
    checkpoints.save(training.checkpoint())
    (told,) = train(Bag(), Toy(), asked, checkpoints, end=True)
    assert told.step == 3
    assert told.seconds_left > 0


def test_nothing_is_ended_with_damaged_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for _ in islice(train(Bag(), Toy(), settings(save_every=3), checkpoints), 5):
        pass
    (tmp_path / "step-3" / "MANIFEST.json").unlink()
    with pytest.raises(RegardError, match="MANIFEST"):
        list(train(Bag(), Toy(), settings(save_every=3), checkpoints, end=True))


def test_validations_fall_where_asked() -> None:
    told = run(Bag(), epochs=2)
    plan = len(told) // 2
    assert [p.step for p in told if p.validation is not None] == [
        plan // 2, plan, plan + plan // 2, 2 * plan,
    ]  # fmt: skip
    told = run(Bag(), epochs=0, steps=8, evaluate_every=3)
    assert [p.step for p in told if p.validation is not None] == [3, 6, 8]


def test_a_loss_that_is_not_finite_is_one_line() -> None:
    model = Bag()
    model.scale.fill_(math.nan)
    with pytest.raises(RegardError, match=r"not finite at step 1; try a learning_rate below 0\.05"):
        run(model)


def test_a_part_without_items_adds_nothing() -> None:
    class Few(Toy):
        """Only the label "many" counts; a mean over no text is NaN."""

        def items(self, batch: Any) -> list[float]:
            return [float(batch.labels.sum())]

        def loss(self, model: torch.nn.Module, batch: Any) -> torch.Tensor:
            counts = batch.labels == 1
            logits = model(batch.tokens, batch.lengths)[counts]
            return torch.nn.functional.cross_entropy(logits, batch.labels[counts])

    def trained(accumulate: int) -> Bag:
        model = Bag().double()
        model.dropout.p = 0.0
        settings = TrainingSettings(steps=12, threads=1, batch_size=5, accumulate=accumulate)
        list(train(model, Few(), settings, precision=Precision("fp32", "")))
        return model

    whole, in_parts = trained(1), trained(5)
    torch.testing.assert_close(in_parts.state_dict(), whole.state_dict(), rtol=0, atol=1e-10)


def test_nothing_to_train_on() -> None:
    with pytest.raises(RegardError, match="the train split is empty"):
        list(train(Bag(), Toy(train=0), settings()))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    run(Bag(), Checkpoints(tmp_path))
    other = Bag()
    other.to_logits = torch.nn.Linear(5, 3)
    with pytest.raises(RegardError, match=r"to_logits.weight is \(2, 5\) there and \(3, 5\) here"):
        list(train(other, Toy(), settings(), Checkpoints(tmp_path)))
    other.more = torch.nn.Linear(1, 1)
    with pytest.raises(RegardError, match=r"only one side has more.bias"):
        list(train(other, Toy(), settings(), Checkpoints(tmp_path)))


def test_a_failed_save_leaves_the_earlier_ones(tmp_path: Path, monkeypatch: Any) -> None:
    checkpoints = Checkpoints(tmp_path)
    training = train(Bag(), Toy(), settings(save_every=3), checkpoints)
    for _ in islice(training, 7):
        pass
    checkpoints.finish()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("regard.core.atomic_io.write_through", full)
        with pytest.raises(RegardError, match=r"step-9: No space left on device; it needs"):
            list(training)
    assert checkpoints.steps() == [3, 6]
    assert {path.name for path in tmp_path.iterdir()} == {"step-3", "step-6"}
    whole, resumed = Bag(), Bag(seed=8)
    run(whole)
    run(resumed, checkpoints)
    assert same(whole, resumed)


def test_seeds_of_steps_do_not_meet() -> None:
    seeds = {step_seed(seed, step) for seed in range(20) for step in range(500)}
    assert len(seeds) == 20 * 500


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    training = train(Bag(), Toy(), settings(threads=before + 1))
    next(training)
    assert torch.get_num_threads() == before + 1
    training.close()
    assert torch.get_num_threads() == before


def test_small_data_get_small_batches() -> None:
    toy = Toy()
    tokens = fitting_batch(toy)
    assert tokens == MOST_TOKENS // LEAST_STEPS  # all 60 texts fit into one batch
    told = list(train(Bag(), toy, settings(batch_tokens=0, epochs=1)))
    assert told[-1].tokens == sum(map(len, toy.texts["train"]))
    assert len(told) > 1
    long = Toy(train=9)
    long.texts["train"][4] = toy.texts["train"][0].repeat(300)[:1000]
    assert fitting_batch(long) == len(long.texts["train"][4])
    many = Toy()
    many.texts["train"] = [text.repeat(1000) for text in toy.texts["train"]] * 3
    assert fitting_batch(many) == MOST_TOKENS


def test_batches_hold_so_many_examples_and_the_warmup_counts_steps() -> None:
    plan = Training(Bag(), Toy(), settings(batch_size=7), Precision("fp32", "asked for")).plan()
    assert max(map(len, plan)) <= 7
    assert sum(map(len, plan)) == len(Toy().lengths("train", 0, 0))
    rates = [
        p.learning_rate for p in run(Bag(), epochs=0, steps=100, warmup=4, schedule="constant")
    ]
    assert rates[:5] == pytest.approx([0.0125, 0.025, 0.0375, 0.05, 0.05])
    short = [
        p.learning_rate for p in run(Bag(), epochs=0, steps=10, warmup=50, schedule="constant")
    ]
    assert short[1:3] == pytest.approx([0.05, 0.05])  # a tenth of the budget is one step


def test_small_data_are_learned_for_as_many_steps_and_validated_as_seldom() -> None:
    """An epoch of 6 steps: 40 of them would end while the rate hardly stood."""
    asked = TrainingSettings(patience=3, batch_tokens=64, learning_rate=0.01)
    training = Training(Bag(), Toy(), asked, Precision("fp32", "asked for"))
    told = list(islice(training.run(), 2 * FEW_BETWEEN + 5))
    steps = training.state.plan
    assert steps < LEAST_BETWEEN
    assert told[0].steps == pytest.approx(MOST_STEPS, rel=0.01)
    apart = -(-FEW_BETWEEN // steps) * steps
    seen = [p.step for p in told if p.validation is not None]
    assert seen == list(range(apart, told[-1].step + 1, apart))


@pytest.fixture(scope="module")
def large() -> Toy:
    """So many texts that a batch is not cut short for them."""
    task = Toy(train=120_000)
    answers = {split: task.answers(split) for split in task.texts}
    task.answers = answers.__getitem__  # type: ignore[method-assign, assignment]
    return task


class Slow(Bag):
    """Takes as long as its batch is large, by a clock of its own."""

    def __init__(self, clock: list[float], each: float) -> None:
        super().__init__()
        self.clock, self.each = clock, each

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        self.clock[0] += self.each * tokens.numel()
        return super().forward(tokens, lengths)


@pytest.mark.parametrize(
    ("each", "changes", "batch", "says"),
    [
        (1e-6, {}, 8192, ""),  # all fits
        (4e-5, {}, 1024, ""),  # 60 s / (1,024 · 40 µs): some 1,500
        (1e-3, {}, 256, "updates fit into 1 minutes, too few; take a smaller network"),
        (4e-5, {"batch_tokens": 8192}, 8192, "too few; batch_tokens="),
        (2e-3, {"batch_size": 40}, 8192, "too few; batch_size="),
    ],
)
def test_a_budget_in_minutes_chooses_the_batch_or_warns_of_few_updates(
    each: float, changes: dict[str, int], batch: int, says: str, large: Toy,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    model, asked = Slow(clock, each), TrainingSettings(minutes=1, **changes)
    training = Training(model, large, asked, Precision("fp32", "asked for"))
    assert training.batch_tokens == 8192
    checkpoints = Checkpoints(tmp_path)
    steps = list(islice(training.run(checkpoints), 6))
    assert training.batch_tokens == batch
    notes = [step.few_updates for step in steps if step.few_updates]
    assert len(notes) == bool(says)
    assert says in "".join(notes)
    chosen = 0 if changes else batch
    assert steps[-1].batch_tokens == chosen
    checkpoints.save(training.checkpoint())
    again = Training(Bag(), training.task, asked, training.precision)
    again.resume(checkpoints)
    assert again.batch_tokens == batch


def test_a_batch_that_the_clock_chose_changes_no_weight(large: Toy) -> None:
    model, before = Bag(), Bag()
    training = Training(
        model, large, TrainingSettings(minutes=1e-6), Precision("fp32", "asked for")
    )
    follow_the_clock(training)
    assert training.batch_tokens == 256
    assert same(model, before)
    assert all(parameter.grad is None for parameter in model.parameters())
    steps = Training(Bag(), large, TrainingSettings(steps=1), Precision("fp32", "asked for"))
    follow_the_clock(steps)
    assert steps.batch_tokens == 8192


def test_the_time_left_is_at_the_pace_of_this_process(
    large: Toy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ten steps of 100 s before the stop, then steps of 1 s: 89 more take 89 s."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    asked = TrainingSettings(steps=100, batch_size=4, save_every=10, evaluate_every=1000)
    checkpoints = Checkpoints(tmp_path)

    def told(each: float, steps: int) -> list[Progress]:
        model = Slow(clock, each)
        training = Training(model, large, asked, Precision("fp32", "asked for"))
        found = []
        for progress in islice(training.run(checkpoints), steps):
            found.append(progress)
            model.each = 0.0
            clock[0] += each
        return found

    first = told(100.0, 11)
    assert first[9].seconds_left == pytest.approx(first[9].seconds / 10 * 90)
    second = told(1.0, 3)
    assert second[0].step == 11
    assert second[-1].seconds > 1000
    took = second[-1].seconds - first[9].seconds
    assert second[-1].seconds_left == pytest.approx(took / 3 * 87)
