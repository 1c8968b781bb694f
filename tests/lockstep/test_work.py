"""The estimate of a command's work: near what comes of it, and asked about only where it is much."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import lockstep
from lockstep import ScenarioError, scenarios, work
from lockstep.recommendation import Recommendation
from lockstep.resources import RESOURCES
from lockstep.scenarios import override
from lockstep.simulator.pilot import pilot
from lockstep.work import Work
from lockstep.workloads import memory, sizes
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import scenario

SHIPPED = [name for name in scenarios.shipped() if not name.startswith(("claims/", "faults/"))]


@pytest.mark.parametrize("name", SHIPPED)
def test_nobody_is_asked_before_what_is_shipped(name: str) -> None:
    config = lockstep.load(name)
    for estimate in (work.simulating(config), work.running(config)):
        assert estimate.seconds < work.LONGEST_S / 6  # on a machine that is a sixth as fast, not either


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quickstart", "sizes-only", "digits-parameter-server"])
def test_nobody_is_asked_before_a_recommendation(name: str) -> None:
    """Not of racks: where 48 workers send to all others, half an hour passes on a fast machine."""
    found = Recommendation(lockstep.load(name))
    assert work.of_many(found.usual(), work.simulating, count=found.expected()).seconds < work.LONGEST_S


def test_a_run_that_ends_at_once_is_known_as_a_whole() -> None:
    seen = pilot(scenario(stop={"steps": 5, "time": "1 h"}), 1.0)
    assert (seen.done, seen.steps, seen.virtual_s < 1) == (1.0, 20, True)


def test_real_gradients_take_their_time() -> None:
    config = scenario(
        stop={"steps": 100}, cluster__compute={"time": {"distribution": "constant", "value": "9 s"}}
    )
    assert work.running(config).seconds == pytest.approx(900, rel=0.05)


def test_passes_take_their_time() -> None:
    """Two stages, four micro-batches, of 0.9 s each and, simulated, of 0.9 s besides for each pass."""
    time = {"distribution": "constant", "value": "9 s"}
    config = scenario(
        **{"cluster__compute": {"time": time}, "cluster__pass_overhead": "0.9 s", "workload__batch_size": 8},
        **{
            "parallelism": {"pipeline": 2, "micro_batches": 4},
            "strategy": "all-reduce",
            "stop": {"steps": 20},
        },
    )
    assert work.running(config).seconds == pytest.approx(
        lockstep.simulate(config).metrics["duration_s"], rel=0.05
    )
    small = scenario(stop={"steps": 100}, workload__batch_size=512, strategy="all-reduce")
    split = override(small, "parallelism", {"pipeline": 4, "micro_batches": 512})
    passes = 3 * 512 * 4 * 100
    assert work.simulating(split).seconds > passes * 5e-6
    assert work.simulating(split).seconds > 20 * work.simulating(small).seconds


def test_to_say_why_takes_as_many_simulations_as_there_are_resources() -> None:
    config = scenario()
    once = work.simulating(config).seconds
    assert work.simulating(config, why=True).seconds == pytest.approx((2 + len(RESOURCES)) * once)


def test_work_adds_up() -> None:
    once = Work(10.0, 5.0)
    assert once + Work(1.0, 9.0) == Work(11.0, 9.0)
    assert once.times(6, at_once=2) == Work(30.0, 10.0)
    assert work.of_many(range(1000), lambda number: once, at_once=4) == Work(2500.0, 20.0)
    assert work.of_many([1], lambda number: once, count=7) == Work(70.0, 5.0)
    assert work.of_many([], lambda number: once) == Work(0.0, 0.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (7200, "2 hours"),
        (3700, "62 minutes"),
        (5 * 86400, "5 days"),
        (1e9, "32 years"),
        (1e20, "millions of years"),
    ],
)
def test_long_times_in_words(seconds: float, words: str) -> None:
    assert work.duration(seconds) == words


COMMANDS = [
    ["simulate", "FILE", "--set", "stop.steps=1_000_000_000"],
    ["simulate", "FILE", "--set", "stop={time: 1e9 s}"],
    ["run", "FILE", "--set", "stop={time: 3 h}"],
    ["run", "FILE", "--set", "stop={steps: 1000}", "--set", "cluster.compute.time.mean=1 min"],
    ["validate", "FILE", "--set", "stop={time: 3 h}"],
    ["sweep", "FILE", "--set", "sweep={seed: [1, 2, 3]}", "--set", "stop.steps=300_000_000"],
    ["recommend", "FILE", "--set", "stop.steps=30_000_000"],
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(arguments[::2]))
def test_without_a_terminal_it_is_refused_in_one_line(
    command: Lockstep, sizes_only: Path, tmp_path: Path, arguments: list[str]
) -> None:
    given = [str(sizes_only) if word == "FILE" else word for word in arguments]
    ended = command(*given, *([] if given[0] == "recommend" else ["--out", tmp_path / "out"]))
    assert ended.status == 2
    assert ended.err.startswith("error: this takes about ")
    assert ended.err.endswith("or say --yes\n")
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_yes_is_an_answer_and_so_are_y_and_n_on_a_terminal(
    command: Lockstep, sizes_only: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LONGEST_S", 0.0)
    assert command("simulate", sizes_only, "--json").status == 2
    fine(command("simulate", sizes_only, "--json", "--yes"))
    monkeypatch.setattr("lockstep.commands.options.on_a_terminal", lambda: True)
    for answer, status in (("y", 0), ("n", 130)):
        monkeypatch.setattr("builtins.input", lambda *_, answer=answer: answer)
        ended = command("simulate", sizes_only, "--json")
        assert ended.status == status
        assert "This takes about" in ended.err
        assert ("throughput" in ended.out) == (answer == "y")


def test_a_sweep_that_is_nearly_done_is_not_asked_about_again(
    command: Lockstep, sizes_only: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = ["sweep", sizes_only, "--set", "sweep={seed: [1, 2]}", "--jobs", 1, "--out", tmp_path / "out"]
    fine(command(*sweep))
    monkeypatch.setattr(work, "LONGEST_S", 0.0)
    fine(command(*sweep))


def test_nobody_is_asked_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "LONGEST_S", 0.0)
    assert lockstep.simulate(scenario()).metrics["updates"] == 20


PROBLEMS: list[dict[str, object]] = [
    {"problem": "logistic", "dimension": 5_000},
    {"problem": "logistic", "dimension": 5_000, "density": 0.1},
    {"problem": "quadratic", "dimension": 5_000_000},
]
# each in a process of its own, which has nothing of the others; torch is imported once
MEASURE = f"""
import os, pathlib, torch, numpy
from lockstep import scenarios
from lockstep.workloads import build, datasets
def peak():
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
for document in {PROBLEMS}:
    if pid := os.fork():
        assert os.waitpid(pid, 0)[1] == 0
        continue
    workload = scenarios.Problem.model_validate(document)
    build(scenarios.Problem.model_validate(dict(problem=document["problem"], dimension=5)), 1, 0).gradient
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak from now on, not that of the imports
    before = peak()
    learner = build(workload, 1, 0)
    learner.gradient(learner.initial(), 0, 0)
    print(peak() - before, flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def measured() -> list[int]:
    """The bytes that a gradient of each problem needs."""
    said = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True).stdout
    return [int(line) for line in said.split()]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(PROBLEMS)), ids=lambda number: str(PROBLEMS[number]))
def test_the_memory_of_a_workload_is_told_within_a_half(number: int, measured: list[int]) -> None:
    workload = scenarios.Problem.model_validate(PROBLEMS[number])
    told = memory.bytes_of(workload, sizes(workload))
    assert told == pytest.approx(measured[number], rel=0.5)  # the allocator rounds, and keeps what was freed


def test_the_memory_of_data_grows_with_the_mini_batch_and_needs_no_data() -> None:
    cifar = {"dataset": "cifar10", "model": "cnn"}
    mini_batches = [scenarios.Data.model_validate({**cifar, "batch_size": n}) for n in (32, 4096, 32_768)]
    told = [memory.bytes_of(workload, sizes(workload)) for workload in mini_batches]
    assert told[0] >= 28 * 60_000 * 3072  # while the images are normalised
    assert told[2] > 7 * told[1]
    nothing = scenarios.Data.model_validate({"dataset": "cifar10", "learning": False})
    assert memory.bytes_of(nothing, sizes(nothing)) == 4 * 4 * 197_322


def test_the_container_may_have_less_than_the_machine(tmp_path: Path) -> None:
    for name, text in {"max": "1000", "current": "700", "stat": "anon 500\ninactive_file 200\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory._of_the_container(tmp_path) == 500
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._of_the_container(tmp_path) == float("inf")
    assert memory._of_the_container(tmp_path / "nowhere") == float("inf")
    assert memory.free_bytes() > resource.getpagesize()


def test_what_needs_more_than_there_is_names_its_key() -> None:
    with pytest.raises(
        ScenarioError, match=r"it takes 1,000,000\.0 GB of memory, and .* free; do less"
    ) as caught:
        memory.require(1e15, "it", "stop.steps", "do less")
    assert caught.value.key == "stop.steps"
