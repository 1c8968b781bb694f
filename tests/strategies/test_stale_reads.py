"""SSP and DOWNPOUR as their papers have them: workers read what they have, while newer parameters come."""

from collections import defaultdict
from itertools import product
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import ScenarioError
from lockstep.job.node import Node as RunningNode
from lockstep.workloads import build
from tests.support.nightly import drawn, examples
from tests.support.scenarios import scenario
from tests.support.worlds import TIMES, learning, recording, worlds

RATE = 0.1
LATE = {"cluster__network": {"latency": "5 ms"}, "stop": {"steps": 50}}  # 10 ms there and back, as a gradient
UPDATES = 5_000
COMPUTED = 50 * 0.010 + 0.005  # s: every mini-batch, and the last push


def seconds(strategy: dict[str, Any], **changes: Any) -> float:
    found: float = lockstep.simulate(scenario(strategy=strategy, **{**LATE, **changes})).metrics["duration_s"]
    return found


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "ssp"},
        {"name": "ssp", "bound": 100},
        {"name": "downpour"},
        {"name": "downpour", "communication_window": 5},
        {"name": "bounded-delay"},
    ],
    ids=str,
)
def test_what_is_under_way_is_hidden_behind_computing(strategy: dict[str, Any], servers: int) -> None:
    assert seconds(strategy, cluster__servers=servers) == pytest.approx(COMPUTED)


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "ssp", "bound": 0},
        {"name": "ssp", "bound": 0, "prefetch": False},
        {"name": "ssp-blocking", "bound": 100},
        {"name": "downpour-blocking", "communication_window": 1},
    ],
    ids=str,
)
def test_who_waits_for_every_answer_waits_for_the_network(strategy: dict[str, Any]) -> None:
    """Two latencies between the 50 gradients, and one behind them."""
    assert seconds(strategy) == pytest.approx(50 * 0.010 + 49 * 0.010 + 0.005)


def test_who_asks_when_the_copy_is_too_old_pays_for_each_read() -> None:
    """Ho et al. without SSPPush: fewer bytes, and a round trip of 10 ms a read; fewer with a larger bound."""
    ahead = lockstep.simulate(scenario(strategy={"name": "ssp", "bound": 9}, **LATE)).metrics
    asked = [
        lockstep.simulate(scenario(strategy={"name": "ssp", "bound": bound, "prefetch": False}, **LATE))
        for bound in (3, 9)
    ]
    for run in asked:
        messages = run.records[(run.records["event"] == "message") & (run.records["kind"] == "parameters")]
        reads = (messages["peer"] == 0).sum() - 1 if "peer" in messages else 0
        assert run.metrics["duration_s"] == pytest.approx(COMPUTED + 0.010 * reads)
        assert run.metrics["bytes_sent"] < 0.75 * ahead["bytes_sent"]
    assert asked[1].metrics["duration_s"] < asked[0].metrics["duration_s"]


# ------------------------------------------------------------------ what is read


@pytest.mark.slow
@examples(0.3)
@given(worlds(), st.integers(0, 4), st.booleans())
def test_a_read_at_clock_c_holds_everyones_first_c_minus_bound_pushes_and_all_own(
    world: dict[str, Any], bound: int, prefetch: bool
) -> None:
    """With moves that count: worker w's move is 1 at place w of the quadratic's parameters.

    So the parameters that a gradient is computed from say whose moves, and how many, are in them.
    """
    workers = world["cluster__workers"]
    clocks: dict[int, int] = defaultdict(int)
    least: list[int] = []

    async def gradient(self: RunningNode, parameters: torch.Tensor) -> torch.Tensor:
        inside = (parameters - self.initial_parameters())[:workers].round().int().tolist()
        assert inside[self.rank] == clocks[self.rank]  # own moves at once, and once
        assert min(inside) >= clocks[self.rank] - bound
        assert clocks[self.rank] - min(clocks[worker] for worker in range(workers)) <= bound
        least.append(clocks[self.rank] - min(inside))
        await compute(self, parameters)
        clocks[self.rank] += 1
        counting = torch.zeros_like(parameters)
        counting[self.rank] = -1.0
        return counting

    compute = RunningNode.gradient
    strategy = {"name": "ssp", "bound": bound, "prefetch": prefetch, "learning_rate": 1.0}
    with mock.patch.object(RunningNode, "gradient", gradient):
        lockstep.simulate(learning(**world, strategy=strategy))
    assert max(least) <= bound


def test_a_copy_holds_own_moves_at_most_once_on_several_shards() -> None:
    """One worker alone is serial SGD, however late the answers are."""
    for prefetch in (True, False):
        for strategy in ({"name": "ssp", "prefetch": prefetch, "bound": 7},):
            config = learning(
                cluster__workers=1, cluster__servers=3, cluster__network={"latency": "25 ms"},
                strategy={**strategy, "learning_rate": RATE}, stop={"steps": 12},
            )  # fmt: skip
            learner = build(config.workload, 1, config.seed)
            expected = learner.initial()
            for step in range(12):
                expected = expected - RATE * learner.gradient(expected, 0, step)
            assert lockstep.simulate(config).parameters == pytest.approx(expected.numpy(), abs=1e-6)


# ------------------------------------------------------------------ DOWNPOUR, algorithm 7.1


def algorithm(learner: Any, steps: int, push: int, fetch: int, late: int) -> tuple[Any, list[Any]]:
    """One replica by algorithm 7.1, whose fetches arrive in the `late`-th step after they were begun.

    What the server has in the end, and what each gradient was computed from. A fetch sees what was pushed
    before it; its parameters replace the replica's while that computes, so before the gradient's own step.
    """
    server = parameters = learner.initial()
    accrued, seen, arriving = 0.0 * server, [], {}
    for step in range(steps):
        if step % fetch == 0 and step and not arriving:
            arriving[step + late] = server
        seen.append(parameters)
        move = -RATE * learner.gradient(parameters, 0, step)
        accrued = accrued + move
        parameters = arriving.pop(step, parameters) + move
        if (step + 1) % push == 0 or step == steps - 1:
            server, accrued = server + accrued, 0.0 * server
    return server, seen


@pytest.mark.parametrize(("push", "fetch"), [(1, 1), (2, 3), (3, 2), (1, 4), (4, 1)])
@pytest.mark.parametrize("late", [0, 1])
def test_downpour_by_the_paper(push: int, fetch: int, late: int) -> None:
    """Gradients take 10 ms; a fetch, there and back, 6 ms or 16 ms."""
    config = learning(
        cluster__workers=1, cluster__network={"latency": f"{3 + 5 * late} ms"},
        strategy={"name": "downpour", "push_period": push, "fetch_period": fetch, "learning_rate": RATE},
        cluster__compute={"time": {"distribution": "constant", "value": "10 ms"}}, stop={"steps": 12},
    )  # fmt: skip
    with recording() as seen:
        found = lockstep.simulate(config).parameters
    learner = build(config.workload, 1, config.seed)
    server, expected = algorithm(learner, 12, push, fetch, late)
    for step in range(12):
        assert seen[0, step].numpy() == pytest.approx(expected[step].numpy(), abs=1e-6)
    assert found == pytest.approx(server.numpy(), abs=1e-6)


def test_adagrad_at_downpours_server_is_the_papers() -> None:
    """η = γ/√Σg² for each parameter: moves of SGD are gradients times a rate, which cancels."""
    runs = [
        lockstep.simulate(
            learning(
                strategy={"name": name, "server_optimizer": "adagrad", "learning_rate": rate},
                cluster__workers=1, stop={"steps": 1},
            )
        ).parameters
        for name in ("downpour", "downpour-blocking")
        for rate in (0.01, 0.1)
    ]  # fmt: skip
    gradients = np.abs(runs[0]) > 0
    assert np.abs(runs[0])[gradients] == pytest.approx(0.1, rel=1e-4)  # γ · g/√g² at the first
    for run in runs[1:]:
        assert run == pytest.approx(runs[0], rel=1e-4)


def test_a_slow_network_holds_downpour_up_instead_of_queueing() -> None:
    """A push of 40 ms every 10 ms: the 50 pushes take 2 s, and the worker is not far ahead of them."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=1, cluster__network={"bandwidth": "100 kB/s"},
            strategy={"name": "downpour", "fetch_period": 10}, stop={"steps": 50},
        )
    )  # fmt: skip
    assert run.metrics["duration_s"] == pytest.approx(50 * 0.040 + 0.010, rel=0.01)
    gradients = run.records[run.records["event"] == "gradient"]
    assert gradients["end"].max() == pytest.approx(run.metrics["duration_s"], abs=0.1)


READERS: list[dict[str, Any]] = [{"name": "downpour"}, {"name": "ssp", "bound": 10_000}]


@pytest.mark.parametrize(
    ("strategy", "time", "workers"),
    drawn(product(READERS, TIMES, [1, 2, 5, 8]), one_in=3, family=lambda case: str(case[0])),
    ids=str,
)
def test_mean_staleness_of_whoever_computes_on_is_2n_minus_1(
    strategy: dict[str, Any], time: dict[str, Any], workers: int
) -> None:
    """From what it reads to its gradient's push a worker pushes twice, all together 2n times in the mean.

    That is conserved whatever the compute times: every update makes the 2n copies older by one that were read
    and whose gradients are not yet applied. The first 2n are younger, as if read before; the last 2n
    have gathered what is in no mean: at most what came since their worker's last two pushes.
    """
    config = scenario(
        cluster__workers=workers,
        cluster__compute={"time": time},
        strategy=strategy,
        stop={"updates": UPDATES},
    )
    run = lockstep.simulate(config)
    updates = run.records[run.records["event"] == "update"]
    last = updates.groupby("peer")["version"].apply(lambda versions: versions.nlargest(2).sum())
    gathered = (2 * UPDATES - last).sum()
    found = run.metrics["staleness"]["mean"]
    assert found == pytest.approx(2 * workers - 1, abs=(4 * workers**2 + gathered) / UPDATES)


# ------------------------------------------------------------------ what does not go together


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (
            {"name": "ssp", "consistency": "asynchronous"},
            "needs a server that tells its clock, unlike .*valid: ssp",
        ),
        (
            {"name": "ssp", "consistency": "bounded-delay"},
            "needs a server that tells its clock, unlike .*valid: ssp",
        ),
        (
            {"name": "downpour", "consistency": "ssp"},
            "needs a server that holds no answer back, unlike ssp's",
        ),
        (
            {"name": "downpour", "consistency": "bounded-delay"},
            "needs a server that holds no answer back, unlike bounded-delay's",
        ),
    ],
    ids=str,
)
def test_readers_need_a_server_that_goes_with_them(strategy: dict[str, str], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        lockstep.simulate(scenario(strategy=strategy))
