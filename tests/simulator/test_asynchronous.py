"""Asynchronous runs in one loop, against all their programs, events and messages: same bits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario, ScenarioError
from lockstep.job.plan import Plan
from lockstep.simulator import (
    asynchronous_kernel,
    flows_kernel,
    kernel,
    loop,
    loop_kernel,
    pilot,
    queues_kernel,
)
from lockstep.simulator.asynchronous import Asynchronous
from lockstep.simulator.engine import Simulation
from lockstep.simulator.errors import SimulationError
from lockstep.simulator.loop import Loop
from lockstep.strategies import STRATEGIES
from tests.support import looped
from tests.support.nightly import examples
from tests.support.scenarios import scenario

STRATEGY: list[Any] = [
    "asynchronous",
    {"name": "asynchronous", "optimizer": "adam", "learning_rate": 0.1},
    "staleness-aware",
    "dc-asgd",
]


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What numba compiles, as it stands."""
    looped.in_python(monkeypatch, asynchronous_kernel)


def follow(config: Scenario) -> bool:
    """Whether the loop could make the run, which nobody does."""
    simulation = Simulation(Plan.of(config))
    simulation.environment.give_up()
    return Asynchronous.follows(simulation)


def assert_same(config: Scenario) -> None:
    """Records, what links carried when, and how it ends."""
    looped.assert_same(Asynchronous, config)


@st.composite
def runs(draw: st.DrawFn) -> Scenario:
    """All that the loop is told of; bandwidths such that flows meet, and times that meet too."""
    workers = draw(st.integers(1, 7))
    network = draw(looped.networks())
    servers = {
        "count": draw(st.integers(1, 5)),
        "colocated": draw(st.booleans()),
        "speed": draw(st.sampled_from([1, 0.5])),
    }
    return scenario(
        cluster__workers=workers,
        cluster__workers_per_host=draw(st.sampled_from([1, 1, 2])),
        cluster__servers=servers,
        cluster__network=network,
        workload={"parameters": draw(st.sampled_from([1, 3, 500, 3000]))},
        strategy=draw(st.sampled_from(STRATEGY)),
        **draw(looped.paces(workers, 1)),
    )


@examples(3)
@given(runs())
def test_same_bits(config: Scenario) -> None:
    assert_same(config)


@pytest.mark.usefixtures("in_python")
@examples(0.25)
@given(runs())
def test_same_bits_without_a_compiler(config: Scenario) -> None:
    assert_same(config)


def busy(**changes: Any) -> Scenario:
    """Every host sends to every host, and flows hold each other back."""
    given: dict[str, Any] = {
        "cluster__workers": 6,
        "cluster__servers": {"count": 6, "colocated": True},
        "cluster__network": {"bandwidth": "1 MB/s", "latency": "1 ms"},
        "cluster__compute": {"time": {"distribution": "exponential", "mean": "1 ms"}},
        "workload": {"parameters": 30_000},
        "stop": {"steps": 40},
    }
    return scenario(**given | changes)


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize("queue", [{}, {"queue": "3 kB"}])
def test_so_has_a_busy_run(queue: dict[str, str]) -> None:
    network = {"bandwidth": "1 MB/s", "latency": "1 ms", **queue}
    assert_same(busy(cluster__network=network, stop={"steps": 4}))


def test_same_bits_in_longer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rooms that become full, times that are drawn again, links that are read often."""
    monkeypatch.setattr(loop, "_ROWS", 7)
    monkeypatch.setattr(loop, "_DRAWS", 20)
    assert_same(busy())
    assert_same(busy(cluster__servers=1, cluster__memory_bandwidth="1 MB/s"))
    assert_same(busy(workload={"dataset": "digits", "model": "mlp", "learning": False}, stop={"epochs": 3}))


def test_a_short_run_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take longer to load what is compiled; what others have taken before counts, too."""
    monkeypatch.setattr(Loop, "messages", 0.0)
    monkeypatch.setattr(loop, "ready", lambda *_: False)
    monkeypatch.setattr(loop, "_MANY", 7 * 6 * 6 * 2 * 40)
    monkeypatch.setattr(loop, "native", lambda *_: asynchronous_kernel.run)
    simulation = Simulation(Plan.of(busy()))
    simulation.environment.give_up()
    assert [bool(Asynchronous.of(simulation)) for _ in range(9)] == [False] * 7 + [True] * 2


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "synchronous"},
        {"strategy": {"name": "asynchronous", "warm_start": 3}},
        {"strategy": {"name": "asynchronous", "codec": "fp16"}},
        {"strategy": {"name": "asynchronous", "answer_codec": "fp16"}},
        {"workload": {"problem": "quadratic"}},
        {"stop": {"updates": 30}},
        {"cluster__servers": {"count": 1, "hierarchy": {"groups": 2}}},
        {"cluster__cores_per_host": 1, "cluster__workers_per_host": 2},
        {"cluster__stragglers": [{"worker": 1, "slowdown": 2, "spells": {"every": "1 s", "last": "1 s"}}]},
        {
            "cluster__faults": [{"worker": 1, "at": "10 ms", "crash": True, "back_after": "5 ms"}],
            "recovery": {"on_failure": "continue"},
        },
        *(
            {"cluster__network": {"bandwidth": "1 MB/s"} | network}
            for network in (
                {"burst": {"size": "1 MB", "line_rate": "2 MB/s"}},
                {"receive_overhead": "1 us"},
                {"jitter": {"deviation": "1 ms"}},
            )
        ),
    ],
    ids=str,
)
def test_what_only_messages_can_tell(changes: dict[str, Any]) -> None:
    assert follow(busy())
    assert not follow(busy(**changes))


def test_time_that_stands_still_is_told_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    config = scenario(
        cluster__compute={"time": {"distribution": "constant", "value": "0 s"}},
        cluster__network={"latency": "0 s"},
        stop={"time": "1 s"},
    )
    monkeypatch.setattr(Asynchronous, "pays", lambda simulation, messages: True)
    with pytest.raises(SimulationError, match="virtual time stands still"):
        lockstep.simulate(config)


def test_the_loop_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """And tells how far it is."""
    pytest.importorskip("numba")
    monkeypatch.setattr(loop, "_MANY", 0)
    used, told = [], []
    made = Asynchronous.run
    monkeypatch.setattr(Asynchronous, "run", lambda self: used.append(self) or made(self))
    lockstep.simulate(busy(), told.append)
    assert len(used) == 1
    assert told
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_strategies_whose_programs_it_has() -> None:
    """Whatever the rule."""
    alone = {"cluster__servers": 1}
    names = {
        name for name in STRATEGIES if STRATEGIES[name].has_servers and follow(busy(strategy=name, **alone))
    }
    assert names == {"asynchronous", "staleness-aware", "dc-asgd"}


def test_an_estimate_is_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is long by its events: how long the loop takes to the same instant."""
    pytest.importorskip("numba")
    monkeypatch.setattr(pilot, "_LONG", 0)
    config, made = busy(stop={"steps": 100_000}), pilot._in_a_loop
    calls = list[tuple[pilot.Pilot, pilot.Pilot]]()

    def looped(plan: Plan, by_events: pilot.Pilot) -> pilot.Pilot:
        calls.append((by_events, made(plan, by_events)))
        return calls[-1][1]

    monkeypatch.setattr(pilot, "_in_a_loop", looped)
    found = pilot.pilot(config, 0.05)
    ((by_events, by_loop),) = calls
    assert found == by_loop
    assert found.took_s > 0
    assert found.steps > by_events.steps > 0
    assert found.done == pytest.approx(found.steps / 600_000)
    learns = busy(workload={"problem": "quadratic"}, stop={"steps": 100_000})
    pilot.pilot(learns, 0.05)
    assert len(calls) == 1


def test_bounds_that_nobody_comes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above what a compiled number can be."""
    assert_same(busy(stop={"steps": 10**19, "time": "0.1 s"}))
    monkeypatch.setattr(Loop, "messages", 0.0)
    idle = scenario(
        cluster__compute={"time": {"distribution": "constant", "value": "0 s"}}, stop={"time": "1 s"}
    )
    simulation = Simulation(Plan.of(idle))
    simulation.environment.give_up()
    assert Asynchronous.of(simulation) is None
    assert Loop.messages == 0


def test_it_tells_how_far_it_is_by_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(loop, "_MANY", 0)
    monkeypatch.setattr(loop, "_ROWS", 100)
    told = list[float]()
    lockstep.simulate(busy(stop={"time": "1 s"}), told.append)
    assert len(told) > 3
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_it_stops_now_and_then_so_that_signals_are_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Asynchronous(Simulation(Plan.of(busy(stop={"steps": 2_000}))))
    reasons, run = [], made._run
    monkeypatch.setattr(made, "_run", lambda *given: reasons.append(run(*given)) or reasons[-1])
    made.run()
    assert reasons.count(loop_kernel.PAUSE) > 1


def test_rows_of_one_array_are_told_apart() -> None:
    files = kernel, flows_kernel, queues_kernel, loop_kernel, asynchronous_kernel
    rows = {
        "lr": "CAPACITY SUSTAINED LEFT RATE INNER SHARE CLOCK SINCE BOUND LOOK_AT ENTERED",
        "lw": "HEAD TAIL REACHED MET SIZE RISING COUNT QUEUE ALONE FILLED STACK KNOWN MATTERS"
        " BASE LENGTH USED BOTTLENECK CHANGES AMONG ENOUGH FIRST_TOLD LAST_TOLD",
        "fr": "DUE WAITING BELOW STARTED LEFT_AT LATENCY",
        "fw": "HOLDER OWNER EARLIER MOVED KEY FINISHED BORN LISTED IS_TOLD GOES_AS PLAN NOW KIND VERSION"
        " FOLLOWING THERE",
        "ew": "PATH BEFORE AFTER ROUTE TOLD_BEFORE TOLD_AFTER",
        "whole": "EVENTS ORDER HELD CHANGED TOLD TIGHT WORK SOLVES HEARS MESSAGES GRADIENTS UPDATES WORKS"
        " UNREAD AT ENDED STEPS STILL EMPTY TAKEN SENT CAME",
    }
    for names in rows.values():
        found = [next(vars(file)[name] for file in files if name in vars(file)) for name in names.split()]
        assert found == [*range(len(found))]


def test_connections_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(Plan.of(busy()))
    simulation.environment.give_up()
    monkeypatch.setattr("lockstep.workloads.memory.free_bytes", lambda: 1e4)
    with pytest.raises(ScenarioError, match=r"the state of 72 connections takes 0\.0 GB of memory"):
        Asynchronous(simulation)
