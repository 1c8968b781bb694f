"""Runs whose mini-batches are alike in one loop, against all their programs and messages: same bits."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario
from lockstep.job.plan import Plan
from lockstep.simulator import (
    flows_kernel,
    kernel,
    loop,
    loop_kernel,
    pilot,
    queues_kernel,
    trace,
    traced,
    traced_kernel,
)
from lockstep.simulator.engine import Simulation
from lockstep.simulator.errors import SimulationError, Untraceable
from lockstep.simulator.loops import loop as loop_of
from lockstep.simulator.operations import Send, Trace, Update
from lockstep.simulator.ring import Disturbed
from lockstep.simulator.traced import Traced
from lockstep.strategies import STRATEGIES
from lockstep.strategies.collectives import ALGORITHMS
from tests.support import looped
from tests.support.nightly import examples
from tests.support.scenarios import scenario

ALGORITHM = [name for name in ALGORITHMS if name not in ("gloo-ring", "native")]


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """What numba compiles, as it stands."""
    looped.in_python(monkeypatch, traced_kernel)


def follow(config: Scenario) -> bool:
    """Whether the loop could make the run, which nobody does."""
    simulation = Simulation(Plan.of(config))
    simulation.environment.give_up()
    try:
        return Traced.follows(simulation) and bool(Traced(simulation))
    except Untraceable:
        return False


@st.composite
def strategies(draw: st.DrawFn) -> dict[str, Any]:
    """Those that repeat, as they can be traced."""
    optimizer: dict[str, Any] = {"optimizer": draw(st.sampled_from(["sgd", "adam"]))}
    name = draw(st.sampled_from(["all-reduce", "d-psgd", "synchronous"]))
    if name == "d-psgd":
        return optimizer | {"name": name, "graph": draw(st.sampled_from(["ring", "exponential", "complete"]))}
    if name == "synchronous":
        codecs = st.sampled_from(["none", "none", "fp16", "top-k"])
        return optimizer | {"name": name, "codec": draw(codecs), "answer_codec": draw(codecs)}
    found = optimizer | {
        "name": "all-reduce",
        "algorithm": draw(st.sampled_from(ALGORITHM)),
        "buckets": draw(st.sampled_from([1, 1, 3])),
        "codec": draw(st.sampled_from(["none", "none", "fp16", "top-k"])),
    }
    if found["codec"] == "top-k":
        found["algorithm"] = "two-level"
    if draw(st.booleans()):
        found["max_grad_norm"] = 1.0
    return found


@st.composite
def runs(draw: st.DrawFn) -> Scenario:
    """All that the loop is told of; bandwidths such that flows meet, and times that meet too."""
    workers, paces = draw(st.integers(1, 7)), traced._FEW
    given = draw(looped.paces(workers, paces))
    given["cluster__compute"]["backward"] = draw(st.sampled_from([0.0, 0.5]))
    return scenario(
        cluster__workers=workers,
        cluster__workers_per_host=draw(st.sampled_from([1, 2, 3])),
        cluster__servers={
            "count": draw(st.integers(1, 5)),
            "colocated": draw(st.booleans()),
            "speed": draw(st.sampled_from([1, 0.5])),
        },
        cluster__network=draw(looped.networks()),
        workload={"parameters": draw(st.sampled_from([5, 500, 3000]))},
        strategy=draw(strategies()),
        **given,
    )


def assert_same(config: Scenario) -> None:
    """Records, what links carried when, and how it ends; but for rings that are computed without."""
    try:
        looped.assert_same(Traced, config)
    except Untraceable as why:
        assume("rings" not in str(why))
        raise


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
    """Pairs of hosts send to each other, and flows inside hosts hold each other back."""
    given: dict[str, Any] = {
        "cluster__workers": 8,
        "cluster__workers_per_host": 2,
        "cluster__network": {"bandwidth": "1 MB/s", "latency": "1 ms", "intra_host": {"bandwidth": "3 MB/s"}},
        "cluster__compute": {"time": {"distribution": "exponential", "mean": "1 ms"}},
        "workload": {"parameters": 30_000},
        "strategy": {"name": "all-reduce", "algorithm": "halving-doubling"},
        "stop": {"steps": 40},
    }
    return scenario(**given | changes)


@pytest.mark.usefixtures("in_python")
@pytest.mark.parametrize("queue", [{}, {"queue": "3 kB"}])
def test_so_has_a_busy_run(queue: dict[str, str]) -> None:
    network = {"bandwidth": "1 MB/s", "latency": "1 ms", "intra_host": {"bandwidth": "3 MB/s"}, **queue}
    assert_same(busy(cluster__network=network, stop={"steps": 8}))


def test_same_bits_in_longer_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rooms that become full, times that are drawn again, links that are read often, messages that wait."""
    monkeypatch.setattr(loop, "_ROWS", 7)
    monkeypatch.setattr(loop, "_DRAWS", 20)
    monkeypatch.setattr(traced, "_MESSAGES", 1)
    assert_same(busy())
    assert_same(busy(strategy={"name": "d-psgd", "graph": "complete"}, stop={"time": "2 s"}))
    assert_same(busy(strategy={"name": "all-reduce", "algorithm": "parameter-server", "buckets": 5}))
    assert_same(busy(strategy="synchronous", cluster__servers=3, cluster__memory_bandwidth="1 MB/s"))


@pytest.mark.parametrize(
    "changes",
    [
        {"strategy": "local-sgd"},
        {"strategy": {"name": "synchronous", "chunks": 2}},
        {"strategy": "synchronous", "cluster__servers": {"count": 1, "hierarchy": {"groups": 2}}},
        {"strategy": "backup-workers", "cluster__servers": 1},
        {"strategy": {"name": "all-reduce", "algorithm": "gloo-ring"}},
        {"strategy": {"name": "all-reduce", "algorithm": "native"}},
        {"strategy": "all-reduce"},  # by rings.py
        {"stop": {"steps": 7}},
        {"stop": {"updates": 30}},
        {"workload": {"problem": "quadratic", "learning": True}},
        {"cluster__cores_per_host": 1},
        {"cluster__network": {"bandwidth": "1 MB/s", "jitter": {"deviation": "1 ms"}}},
        {
            "cluster__faults": [{"worker": 1, "at": "10 ms", "crash": True, "back_after": "5 ms"}],
            "recovery": {"on_failure": "continue"},
        },
    ],
    ids=str,
)
def test_what_only_programs_can_tell(changes: dict[str, Any]) -> None:
    assert follow(busy())
    assert not follow(busy(**changes))


def test_strategies_that_repeat() -> None:
    """In all that they can be told: more mini-batches than are looked at are the same, too."""
    assert {name for name, each in STRATEGIES.items() if each.repeats} == {
        "all-reduce",
        "d-psgd",
        "synchronous",
    }


@pytest.mark.parametrize("name", ["all-reduce", "d-psgd", "synchronous"])
def test_each_mini_batch_is_as_the_first(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {"algorithm": "two-level", "buckets": 2} if name == "all-reduce" else {}
    config = busy(strategy={"name": name, **parameters})
    simulation = Simulation(Plan.of(config))
    simulation.environment.give_up()
    (two, *_), made = trace.traces(simulation, rings=True), []
    monkeypatch.setattr(trace, "_BATCHES", 9)
    monkeypatch.setattr(trace._Node, "trace", lambda node: made.append(node) or Trace((), (), ()))
    trace.traces(simulation, rings=True)
    spans = [made[0]._operations[at:to] for at, to in pairwise(made[0]._began)]
    assert len(spans) == 9
    assert all(span == two.again for span in spans)
    server = made[-1]._operations
    if name == "synchronous":
        assert sum(isinstance(each, Update) for each in server) == 9


def test_a_strategy_that_does_not_repeat_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its second mini-batch is not as the first one."""
    monkeypatch.setitem(STRATEGIES, "local-sgd", replace(STRATEGIES["local-sgd"], repeats=True))
    assert not follow(busy(strategy={"name": "local-sgd", "averaging_period": 2, "algorithm": "two-level"}))


def test_the_loop_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """And tells how far it is."""
    pytest.importorskip("numba")
    monkeypatch.setattr(loop, "_MANY", 0)
    used, told = [], []
    made = Traced.run
    monkeypatch.setattr(Traced, "run", lambda self: used.append(self) or made(self))
    lockstep.simulate(busy(), told.append)
    assert len(used) == 1
    assert told
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_a_short_run_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others have taken before counts, too: messages, and more where many go at once."""
    monkeypatch.setattr(loop, "native", lambda *_: traced_kernel.run)
    monkeypatch.setattr(loop, "installed", lambda: True)
    monkeypatch.setattr(loop, "ready", lambda *_: False)
    simulation = Simulation(Plan.of(busy()))
    simulation.environment.give_up()
    assert loop_of(simulation) is None
    assert loop.Loop.messages == 0  # too few in any case
    messages = 8 * 6
    each = pytest.approx(messages * (1 + messages / 5000) * 40)
    monkeypatch.setattr(loop, "_MANY", 3.5 * each.expected)
    assert [bool(loop_of(simulation)) for _ in range(4)] == [False, False, False, True]
    assert loop.Loop.messages / 4 == each
    rings = Simulation(Plan.of(busy(strategy="all-reduce")))
    rings.environment.give_up()
    assert loop_of(rings) is None
    assert loop.Loop.messages / 4 == each
    monkeypatch.setattr(loop, "ready", lambda *_: True)  # it need not be compiled: less is enough
    monkeypatch.setattr(loop, "_FEW", 2 * each.expected)
    monkeypatch.setattr(loop.Loop, "messages", 0.5 * each.expected)
    assert [bool(loop_of(simulation)) for _ in range(2)] == [False, True]


def test_without_a_compiler_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "installed", lambda: False)
    monkeypatch.setattr(loop, "_MANY", 0)
    monkeypatch.setattr(trace, "traces", lambda *_, **__: pytest.fail("traced"))
    lockstep.simulate(busy())


def test_a_loop_that_stands_still_is_left_to_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which say who waits for whom."""
    monkeypatch.setattr(loop, "installed", lambda: True)
    monkeypatch.setattr(loop, "native", lambda *_: traced_kernel.run)
    monkeypatch.setattr(loop, "_MANY", 0)
    made = trace._Node.trace
    cut: list[Any] = []

    def without_a_message(node: Any) -> Trace:
        found = made(node)
        if not cut and any(isinstance(each, Send) for each in found.again):
            cut.append(node)
            found = found._replace(again=[each for each in found.again if not isinstance(each, Send)])
        return found

    monkeypatch.setattr(trace._Node, "trace", without_a_message)
    monkeypatch.setattr(trace, "_check_that_all_is_received", lambda found: None)
    simulation = Simulation(Plan.of(busy(strategy={"name": "d-psgd", "graph": "ring"})))
    with pytest.raises(Disturbed):
        simulation.run()
    assert cut


def test_an_interrupted_trace_leaves_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which Python would say that nobody has awaited it."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "installed", lambda: True)
    monkeypatch.setattr(loop, "native", lambda *_: traced_kernel.run)
    monkeypatch.setattr(loop, "_MANY", 0)
    monkeypatch.setattr(trace, "traces", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lockstep.simulate(busy())


def test_an_estimate_is_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr(pilot, "_LONG", 0)
    found = pilot.pilot(busy(stop={"steps": 100_000}), 0.05)
    assert found.took_s > 0
    assert found.done == pytest.approx(found.steps / 800_000, rel=0.01)


def test_a_program_that_fails_says_so_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(node: Any, optimizer: Any) -> None:
        raise ValueError("on purpose")

    monkeypatch.setitem(STRATEGIES, "all-reduce", replace(STRATEGIES["all-reduce"], worker_loop=fails))
    monkeypatch.setattr(loop, "_MANY", 0)
    with pytest.raises(SimulationError, match="on purpose"):
        lockstep.simulate(busy(strategy="all-reduce"))


@pytest.mark.usefixtures("in_python")
def test_there_is_room_for_all_that_begins_and_arrives_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages arrive late, and all flows of a link end in one instant, where others wait for their turns."""

    async def sends_more_than_one(node: Any, optimizer: Any) -> None:
        parameters, others = node.initial_parameters(), [each for each in node.workers if each != node.rank]
        version = 0
        while await node.next_batch_available():
            await node.gradient(parameters)
            for turn in range(4):
                for other in others:
                    node.send(other, "more", parameters)
                if not turn:
                    await node.apply(lambda: None, 1000)  # the first ones have left, and are in the air
            for other in others * 4:
                await node.receive("more", other)
            version += 1
            await node.updated(version, parameters, [])

    changed = replace(STRATEGIES["all-reduce"], worker_loop=sends_more_than_one)
    monkeypatch.setitem(STRATEGIES, "all-reduce", changed)
    monkeypatch.setattr(traced, "_FEW", 1)
    config = busy(
        strategy="all-reduce",
        workload={"parameters": 100},
        stop={"steps": 1},
        cluster__workers=45,
        cluster__workers_per_host=45,
        cluster__compute={"time": {"distribution": "constant", "value": "1 ms"}},
        cluster__memory_bandwidth="100 B/s",
        cluster__network={"intra_host": {"bandwidth": "1 MB/s", "latency": "100 s"}},
    )
    assert_same(config)


def test_a_program_that_never_waits_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def waits_for_mail(node: Any, optimizer: Any) -> None:
        while not node.arrived("mail"):
            await node.gradient(node.initial_parameters())

    changed = replace(STRATEGIES["all-reduce"], worker_loop=waits_for_mail)
    monkeypatch.setitem(STRATEGIES, "all-reduce", changed)
    monkeypatch.setattr(trace, "_MOST", 1000)
    assert not follow(busy(strategy="all-reduce"))


def test_rows_of_one_array_are_told_apart() -> None:
    files = kernel, flows_kernel, queues_kernel, loop_kernel, traced_kernel
    rows = {
        "fw": "HOLDER OWNER EARLIER MOVED KEY FINISHED BORN LISTED IS_TOLD GOES_AS PLAN NOW CARRIES"
        " FIRST FINAL",
        "whole": "EVENTS ORDER HELD CHANGED TOLD TIGHT WORK SOLVES HEARS MESSAGES GRADIENTS UPDATES WORKS"
        " UNREAD AT ENDED STEPS STILL EMPTY TAKEN SENT CAME FREE_ONE FREE_ONES",
        "events": "START COMPUTED BEGIN LOOK ARRIVE SOLVE APPLIED HEAR PLANNED GOES_ON HANDED_OVER",
    }
    for names in rows.values():
        found = [next(vars(file)[name] for file in files if name in vars(file)) for name in names.split()]
        assert found == [*range(len(found))]


def test_a_trace_that_would_be_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_MOST", 100)
    assert not follow(busy())


def test_one_worker() -> None:
    assert_same(busy(cluster__workers=1))
