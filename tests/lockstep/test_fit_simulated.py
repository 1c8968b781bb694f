"""Tables that the simulator makes, with scatter: `fit` finds what is behind them, and names nothing else."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy.stats import binomtest

import lockstep
from lockstep import ScenarioError
from lockstep.fitting import Fit
from lockstep.pool import results

BANDWIDTH, GRADIENT = "cluster.network.bandwidth", "cluster.compute.time.value"
DRAWN = "cluster.compute.time.mean"  # of a gradient, where times are drawn
LATENCY, OVERHEAD = "cluster.network.latency", "cluster.network.message_overhead"
PARAMETERS = "workload.parameters"
WRITTEN = {
    BANDWIDTH: "{:.6g} B/s",
    GRADIENT: "{:.6g} s",
    DRAWN: "{:.6g} s",
    LATENCY: "{:.6g} s",
    OVERHEAD: "{:.6g} s",
    PARAMETERS: "{:.0f}",
}
WORKERS = (1, 2, 3, 4, 5, 6, 8)
STRATEGIES = (
    ("all-reduce", ""),
    ("synchronous", "servers: 1"),
    ("synchronous", "servers: 2"),
    ("asynchronous", "servers: 1"),
    ("local-sgd", ""),
)
SCENARIO = """\
name: simulated
cluster:
  workers: 1
  {servers}
  network: {{bandwidth: 1 Gbit/s, latency: {latency}}}
  compute: {{time: {{distribution: constant, value: 10 ms}}}}
workload: {{parameters: 1000000, batch_size: 32}}
strategy: {strategy}
stop: {{steps: 4}}
"""


class Case(NamedTuple):
    """A scenario, the values behind its table (base units), and how many workers each row has.

    `scatter`: the standard deviation of what is measured, relative; `told`: whether the table says so.
    """

    text: str
    true: Mapping[str, float]
    workers: np.ndarray
    scatter: float
    told: bool = False


def fitted(case: Case, rng: np.random.Generator, folder: Path) -> Fit:
    """The fit of the case's table; keys are looked for 10 to 100 times above and below.

    Each row is measured with draws of its own, other than those of the simulations that are fitted.
    """
    file = folder / "simulated.yaml"
    file.write_text(case.text)
    behind = [f"{key}={WRITTEN[key].format(value)}" for key, value in case.true.items()]

    def rate(count: int, seed: int) -> float:
        scenario = lockstep.load(file, [*behind, f"cluster.workers={count}", f"seed={seed}"])
        return float(lockstep.simulate(scenario).metrics["throughput"])

    workers = case.workers.tolist()
    rates = [rate(count, 1000 * row) for row, count in enumerate(workers, 1)]
    measured = np.array(rates) * np.exp(rng.normal(0, case.scatter, len(workers)))
    table = pd.DataFrame({"cluster.workers": workers, "throughput": measured, "use": "fit"})
    if case.told:  # as who measures again and again finds it: with the chance of runs
        runs = [np.std([np.log(rate(count, 500_000 + k)) for k in range(8)], ddof=1) for count in workers]
        table["sd"] = measured * np.hypot(case.scatter, runs)
    free = {}
    for key, value in case.true.items():
        low, high = (WRITTEN[key].format(value * rng.uniform(10, 100) ** side) for side in (-1, 1))
        free[key] = yaml.safe_load(low), yaml.safe_load(high)
    return lockstep.fit(file, table, free, jobs=1)


def inside(found: Fit, case: Case) -> dict[str, bool]:
    """Of each key that has an end of an interval: whether its value is in it."""
    return {
        key: (its.low or 0.0) <= case.true[key] <= (its.high or np.inf)
        for key, its in found.free.items()
        if (its.low, its.high) != (None, None)
    }


def drawn(text: str, cv: float, steps: int) -> str:
    """The scenario with gradients' times that are drawn."""
    text = text.replace("constant, value: 10 ms", f"gamma, mean: 10 ms, cv: {cv}")
    return text.replace("steps: 4", f"steps: {steps}")


def random_case(seed: int, gradient: str) -> tuple[Case, np.random.Generator]:
    """A strategy, a bandwidth, a gradient's time, and six rows up to 5% off; half the tables say how far."""
    rng = np.random.default_rng([22 if gradient == GRADIENT else 25, seed])
    strategy, servers = STRATEGIES[rng.integers(len(STRATEGIES))]
    text = SCENARIO.format(strategy=strategy, servers=servers, latency="50 us")
    case = Case(
        text if gradient == GRADIENT else drawn(text, 0.2, 20),
        {BANDWIDTH: 1.25e8 * np.exp(rng.uniform(-1, 2)), gradient: 0.010 * np.exp(rng.uniform(-1, 2))},
        np.sort(rng.choice(WORKERS, size=6, replace=False)),
        rng.uniform(0.005, 0.05),
        bool(rng.integers(2)),
    )
    return case, rng


def hits(seed: int, gradient: str, folder: Path) -> dict[str, bool]:
    """As `inside`, of a random case."""
    case, rng = random_case(seed, gradient)
    (own := folder / str(seed)).mkdir()
    return inside(fitted(case, rng, own), case)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "gradient"),
    [
        (2, GRADIENT),
        pytest.param(200, GRADIENT, marks=pytest.mark.nightly),
        pytest.param(100, DRAWN, marks=pytest.mark.nightly),
    ],
)
def test_95_of_100_intervals_have_the_values_behind_simulated_tables(
    count: int, gradient: str, tmp_path: Path
) -> None:
    """What is allowed is what a hundredth of all honest 95% intervals would not do."""
    cases = [partial(hits, seed, gradient, tmp_path) for seed in range(count)]
    with results(cases, 1 if count == 2 else None) as each:
        found = [*each]
    for key in (BANDWIDTH, gradient):
        its = [one[key] for one in found if key in one]
        print(f"{key}: {sum(its)} of {len(its)} intervals have it; {count - len(its)} values are not named")
        assert len(its) >= 0.8 * count
        assert binomtest(sum(its), len(its), 0.95).pvalue > 0.01


def one_worker(rng: np.random.Generator) -> Case:
    """Its step is one sum of a gradient and two messages, however often it is measured."""
    text = SCENARIO.format(strategy="synchronous", servers="servers: 1", latency="50 us")
    true = {BANDWIDTH: 1.25e8 * np.exp(rng.uniform(-1, 1)), GRADIENT: 0.050 * np.exp(rng.uniform(-1, 1))}
    return Case(text, true, np.ones(6, int), 0.02)


def latency_and_overhead(rng: np.random.Generator) -> Case:
    """A message waits for both."""
    text = SCENARIO.format(strategy="all-reduce", servers="", latency="50 us")
    true = {LATENCY: 5e-3 * np.exp(rng.uniform(-1, 1)), OVERHEAD: 5e-3 * np.exp(rng.uniform(-1, 1))}
    return Case(text, true, np.sort(rng.choice(WORKERS[1:], size=6, replace=False)), 0.02)


def bandwidth_and_parameters(rng: np.random.Generator) -> Case:
    """A message takes their ratio."""
    text = SCENARIO.format(strategy="all-reduce", servers="", latency="0 s")
    true = {BANDWIDTH: 1.25e8 * np.exp(rng.uniform(-1, 1)), PARAMETERS: 1e6 * np.exp(rng.uniform(-1, 1))}
    return Case(text, true, np.sort(rng.choice(WORKERS[1:], size=6, replace=False)), 0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "seeds"),
    [
        (one_worker, 1),
        *(
            pytest.param(make, 5, marks=pytest.mark.nightly)
            for make in (one_worker, latency_and_overhead, bandwidth_and_parameters)
        ),
    ],
)
def test_what_cannot_be_told_apart_is_not_named(
    make: Callable[[np.random.Generator], Case], seeds: int, tmp_path: Path
) -> None:
    """Whatever is said of them is true."""
    for seed in range(seeds):
        rng = np.random.default_rng([23, seed])
        case = make(rng)
        found = fitted(case, rng, tmp_path)
        assert not found.identifiable, found.free
        assert all(inside(found, case).values()), (seed, found.free, case.true)


def test_a_bandwidth_that_nothing_waits_for_is_refused(tmp_path: Path) -> None:
    """One worker that sums with nobody."""
    rng = np.random.default_rng(24)
    text = SCENARIO.format(strategy="all-reduce", servers="", latency="50 us")
    case = Case(text, {BANDWIDTH: 1e8, GRADIENT: 0.02}, np.ones(4, int), 0.02)
    with pytest.raises(ScenarioError, match="changes nothing in the rows to fit"):
        fitted(case, rng, tmp_path)


@pytest.mark.slow
def test_an_interval_knows_the_chance_of_the_simulations(tmp_path: Path) -> None:
    """Gradients' times are drawn: a run of 10 steps alone is some percent off, whatever its rows' `sd`.

    What is measured is the mean of runs with many other seeds, so only the simulations' own chance is left.
    """
    text = SCENARIO.format(strategy="synchronous", servers="servers: 1", latency="50 us")
    (file := tmp_path / "simulated.yaml").write_text(drawn(text, 0.3, 10))
    workers = (1, 2, 3)

    def rate(count: int, seed: int) -> float:
        scenario = lockstep.load(file, [f"cluster.workers={count}", f"seed={seed}"])
        found: float = lockstep.simulate(scenario).metrics["throughput"]
        return found

    measured = [np.exp(np.mean([np.log(rate(count, 100_000 + k)) for k in range(60)])) for count in workers]
    table = pd.DataFrame({"cluster.workers": workers, "throughput": measured, "use": "fit"})
    table["sd"] = 0.001 * table["throughput"]
    inside, widths = 0, []
    for seed in range(8):
        found = lockstep.fit(file, table, {DRAWN: ("1 ms", "100 ms")}, [f"seed={seed * 1000}"], jobs=1)
        low, high = found.free[DRAWN].low, found.free[DRAWN].high
        assert low is not None
        assert high is not None
        inside += low < 0.010 < high
        widths.append(high / low - 1)
    print(f"{inside} of 8 intervals have it; widths {widths}")
    assert binomtest(inside, 8, 0.95).pvalue > 0.01
    assert max(widths) < 0.3
