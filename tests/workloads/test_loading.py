"""Loaders: batches read by processes are those that are read without, and their times those of a queue."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lockstep
from lockstep.calibration import compute
from lockstep.calibration.profile_file import document as profile_of
from lockstep.calibration.table import show
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from lockstep.scenarios.profile import Profile, beneath, called
from lockstep.workloads import build, deterministic_threads
from lockstep.workloads.loading_time import LoadingTime
from tests.support.commands import SLOWNESS
from tests.support.tasks import document, task, written

# Augmented at random, by all three generators, after a while; who has read a sample is known.
SLOW = """
import os, random, time
import numpy as np

class Points(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.0002)
        x = torch.tensor([index / 64, -1.0]) + torch.randn(2) + random.random() + np.random.rand()
        return x, index % 2, os.getpid()
"""
READ = task(model="nn.Linear(2, 2)", data="Points()", more=SLOW)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return written(tmp_path, READ)


def mine(
    loaders: int = 0, learning: bool = True, precision: str = "float32", **changes: Any
) -> lockstep.Scenario:
    workload = {"task": "my_task:f", "batch_size": 8, "loaders": loaders, "learning": learning}
    workload["precision"] = precision
    return made(document(workload=workload, **changes))


@pytest.mark.parametrize("parts", [1, 4])
def test_batches_that_processes_read_have_the_same_bits(folder: Path, parts: int) -> None:
    """Though a loss may change what it is given."""
    plain, ahead = (build(mine().workload, 2, 0) for _ in range(2))
    ahead.read_ahead(1, 2, parts)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    readers = set()
    for step in (0, 0, 1, 2, 3, 4, 20, 21, 2):  # over the end of an epoch, and back
        for number in range(parts):
            ours, theirs = (each.batch(1, step, number, parts) for each in (ahead, plain))
            assert len(ours[0]) == 8 // parts
            assert torch.equal(ours[0], theirs[0])
            assert torch.equal(ours[1], theirs[1])
            readers |= {*ours[2].tolist()}
            ours[0].zero_()
    assert os.getpid() not in readers
    assert len(readers) > 2  # two, and others after each step that nobody expected
    assert {*ahead.batch(0, 0, 0, parts)[2].tolist()} == {os.getpid()}  # another worker's
    assert {*ahead.batch(1, 2, 0, 2)[2].tolist()} == {os.getpid()}  # other parts
    assert torch.equal(torch.get_rng_state(), before)
    ahead.end_reading()


BOXED = """
class Box:
    def __init__(self, samples):
        self.x = torch.stack([sample[0] for sample in samples])

    def __getitem__(self, place):
        return self.x if place == 0 else torch.zeros(len(self.x), dtype=torch.long)
"""


def test_a_batch_of_another_kind_is_a_copy_each_time(folder: Path) -> None:
    """As those of tokenizers, of which a loss may take something away: nobody sees that it did."""
    written(folder, task(data="Points()", more=SLOW + BOXED).replace("loss, {})", "loss, {}, Box)"))
    learner = build(mine().workload, 2, 0)
    learner.read_ahead(1, 2, 1)
    first = learner.batch(1, 0)
    kept = first.x.clone()
    first.x = first.x / 255
    assert torch.equal(learner.batch(1, 0).x, kept)
    learner.end_reading()


JITTERED = """
def jittered(samples):
    xs, ys, who = zip(*samples)
    return torch.stack(xs) * torch.rand(1) * np.random.rand() * random.random(), torch.tensor(ys)
"""


@pytest.mark.parametrize("parts", [1, 4])
def test_what_is_random_as_samples_are_collated_has_the_same_bits(folder: Path, parts: int) -> None:
    """As where words are masked: whoever collates, and whatever was drawn before."""
    written(folder, task(data="Points()", more=SLOW + JITTERED).replace("loss, {})", "loss, {}, jittered)"))
    workload = mine().workload
    plain, here, ahead = (build(workload, 2, 0) for _ in range(3))
    here.read_ahead(1, 0, parts)
    ahead.read_ahead(1, 2, parts)
    last = parts - 1, parts
    first = {learner: learner.batch(1, 0, *last)[0] for learner in (plain, here, ahead)}
    for draw in (torch.rand, np.random.rand, lambda _: random.random()):
        draw(1)
    for learner in (plain, here, ahead):
        assert torch.equal(learner.batch(1, 1, *last)[0], plain.batch(1, 1, *last)[0])
        assert torch.equal(first[learner], first[plain])
    assert torch.equal(plain._test.range(0, 8)[0], plain._test.range(0, 8)[0])
    ahead.end_reading()


@pytest.mark.real
@pytest.mark.parametrize(
    "passes",
    [
        {},
        {"parallelism": {"micro_batches": 4}, "precision": "bf16"},
        {"strategy": {"name": "fsdp", "units": 1}},
    ],
    ids=str,
)
def test_a_real_run_with_loaders_has_the_bits_of_one_without(folder: Path, passes: dict[str, Any]) -> None:
    without, real = lockstep.simulate(mine(**passes)), lockstep.run(mine(loaders=2, **passes))
    assert np.array_equal(without.parameters, real.parameters)


@pytest.mark.real
def test_reading_begins_before_the_clock_starts(folder: Path) -> None:
    """Also where no pass is made before, as replicas would meet in it."""
    model = "nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))"
    slow = SLOW.replace("0.0002", f"{0.1 * SLOWNESS} if torch.utils.data.get_worker_info() else 0")
    written(folder, task(model=model, data="Points()", more=slow))
    workload = {"task": "my_task:f", "batch_size": 8, "loaders": 2, "batch_norm": "synchronised"}
    cluster = {"workers": 1, "network": {}, "compute": "measured"}
    split = {"micro_batches": 2}
    found = lockstep.run(
        made(document(workload=workload, cluster=cluster, parallelism=split, stop={"steps": 1}))
    )
    passes = found.records[found.records["event"] == "pass"]
    half = 0.4 * SLOWNESS  # of what reading the mini-batch takes
    assert (passes["end"] - passes["start"]).max() < half


@pytest.mark.parametrize(
    ("loaders", "work", "reading", "seconds"),
    [
        (1, 2.0, 1.0, 2.0),  # hidden
        (1, 1.0, 3.0, 3.0),  # reading decides
        (3, 1.0, 6.0, 2.0),  # three at once
        (2, 1.0, 1.5, 1.0),
    ],
)
def test_a_step_takes_the_longer_of_computing_and_reading(
    loaders: int, work: float, reading: float, seconds: float
) -> None:
    """A closed form of the long run: max(work, reading ÷ loaders)."""
    times, now, ends = LoadingTime(loaders, lambda: reading), 0.0, []
    for _ in range(120):
        now += times.wait(now) + work
        ends.append(now)
    assert (ends[-1] - ends[59]) / 60 == pytest.approx(seconds, rel=0.02)
    assert ends[2 * loaders - 1] == pytest.approx(2 * loaders * work)  # those are there at the start


def test_a_simulated_run_waits_for_its_loaders(folder: Path) -> None:
    def duration(loaders: int, **loading: Any) -> float:
        drawn = {"time": {"distribution": "constant", "value": "2 ms"}, **loading}
        cluster = {"workers": 2, "network": {}, "compute": drawn}
        config = mine(loaders, learning=False, cluster=cluster, stop={"steps": 50})
        return lockstep.simulate(config).metrics["duration_s"]

    slow = {"loading": {"distribution": "constant", "value": "9 ms"}}
    assert duration(0) == pytest.approx(0.1)
    assert duration(2, **slow) == pytest.approx(50 * 0.0045, rel=0.1)
    assert duration(5, **slow) == pytest.approx(0.1)


def test_the_first_pass_of_a_mini_batch_waits_for_its_loaders(folder: Path) -> None:
    """And the others take their shares of 2 ms."""
    compute = {
        "time": {"distribution": "constant", "value": "2 ms"},
        "loading": {"distribution": "constant", "value": "9 ms"},
        "backward": 0.5,
    }
    config = mine(
        2,
        learning=False,
        cluster={"workers": 1, "network": {}, "compute": compute},
        strategy="all-reduce",
        parallelism={"micro_batches": 2, "recompute": True},
        stop={"steps": 50},
    )
    result = lockstep.simulate(config)
    passes = result.records[result.records["event"] == "pass"]
    took = passes["end"] - passes["start"]
    first = (passes["kind"] == "forward") & (passes["batches"] == 0)
    for kind, seconds in (("forward", 0.0005), ("backward", 0.001)):
        assert took[~first & (passes["kind"] == kind)].to_numpy() == pytest.approx(seconds)
    assert result.metrics["duration_s"] == pytest.approx(50 * 0.0045, rel=0.1)
    waits = took[first].to_numpy()[10:] - 0.0005
    assert waits.mean() == pytest.approx(0.0045 - 0.003)  # a loader's 9 ms for each of two, and forward twice


def test_what_loaders_cannot_do_is_said(folder: Path) -> None:
    for split in ({"pipeline": 2}, {"tensor": 2}):
        with pytest.raises(
            ScenarioError, match=r"loaders: must be 0 where several devices read a mini-batch"
        ):
            lockstep.check(mine(1, parallelism=split))
    plan = lockstep.check(mine(1))
    assert "cluster.compute.loading is not given: loaders take no time" in plan.warnings
    written(folder, task())
    with pytest.raises(ScenarioError, match=r"loaders: must be 0: the task's `train` are tensors"):
        lockstep.check(mine(1))


def test_calibrate_times_reading_apart(folder: Path) -> None:
    with deterministic_threads():
        with_loaders, without = (compute._sample(mine(n).workload, 5, 0.05, "auto") for n in (2, 0))
    assert without.reading == []
    assert min(with_loaders.reading) > 8 * 0.0002
    assert min(with_loaders.gradients) < min(without.gradients) - 8 * 0.0002
    (fit, *_), _ = compute.judged(with_loaders.reading)
    entry = {"workload": compute.key(mine(2).workload), "compute": compute.compute_of(fit, None, fit)}
    assert entry["workload"]["loaders"] == 1  # as for any number of them
    found = profile_of(lockstep.calibration.estimates.Estimates({}, {}, {}), [entry], None, None)
    assert found["compute"][0]["compute"]["loading"] == found["compute"][0]["compute"]["time"]
    profile = Profile.model_validate({"profile": 1, "compute": found["compute"]}, context={"profile": True})
    for loaders, known in ((3, True), (0, False)):
        workload = mine(loaders).workload.model_dump()
        merged = beneath(profile, {"compute": {"backward": 0.5}}, workload)["compute"]
        assert ("loading" in merged) == known


def test_calibrate_says_how_long_reading_takes_and_how_sure_that_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(0)
    gradients, reading = (list(draw.gamma(25, mean / 25, 300)) for mean in (0.004, 0.02))
    nothing = lockstep.calibration.estimates.Estimates({}, {}, {})
    monkeypatch.setattr(compute, "sample", lambda *_, **__: compute.Times(gradients, "cpu", reading))
    monkeypatch.setattr(lockstep.calibration.apply, "step", lambda *_: nothing)
    monkeypatch.setattr(
        lockstep.calibration.layers, "split", lambda *_: {"backward": 0.5, "interval": (0.4, 0.6)}
    )
    config = mine(2)
    name = called(compute.key(config.workload))
    entry, found, _ = lockstep.calibration._compute(name, config, False)
    profile = profile_of(found, [entry], None, None)
    low, high = (
        float(end.removesuffix(" ms")) for end in profile["intervals"][f"compute.{name}.loading.mean"]
    )
    assert 19 < low < np.mean(reading) * 1e3 < high < 21
    show(profile, [])
    said = capsys.readouterr().out
    assert "300 mini-batches" in said
    assert f"{profile['compute'][0]['compute']['loading']['mean']}" in said


CALLED = """
calls = []

def stacked(samples):
    calls.append(1)
    assert len(calls) < 12, "eleven"
    return torch.utils.data.default_collate(samples)
"""
RAISES = "if index == 50: raise KeyError('row 50')"
BROKEN = {
    "a sample": (SLOW.replace("time.sleep(0.0002)", RAISES), "KeyError: 'row 50'"),
    "collate": (SLOW + CALLED, "AssertionError: eleven"),
}


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("case", BROKEN)
def test_what_a_loader_raises_is_said_as_without(folder: Path, case: str, processes: int) -> None:
    more, said = BROKEN[case]
    text = task(data="Points()", more=more, metrics="{}, stacked" if CALLED in more else "{}")
    lines = (written(folder, text) / "my_task.py").read_text().splitlines()
    line = next(n for n, each in enumerate(lines, 1) if "raise Key" in each or "assert" in each)
    learner = build(mine().workload, 1, 0)
    learner.read_ahead(0, processes)

    def learn() -> None:
        for step in range(16):
            learner.gradient(learner.initial(), 0, step)

    where = rf"\(.*my_task.py, line {line}\)$"
    with pytest.raises(ScenarioError, match=f"^workload.task: my_task:f raised {said} {where}"):
        learn()
    learner.end_reading()
