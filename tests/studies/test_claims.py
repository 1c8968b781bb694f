"""`lockstep claims`: its statistics, its machinery with made-up claims, and that all is in place."""

import csv
import json
import re
from functools import partial
from math import log
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lockstep
from lockstep.scenarios import Scenario, shipped
from lockstep.studies.reproductions import chosen, claims
from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs, verdict
from lockstep.studies.reproductions.experiment import judge
from lockstep.studies.reproductions.metrics import CHANCE, crossing, learned, until
from lockstep.studies.reproductions.table import HEAD, markdown, row, show, value
from tests.support import ROOT
from tests.support.command_line import Lockstep

CLAIMS = {claim.name: claim for claim in claims()}

# Statistics


def test_the_interval_is_students() -> None:
    """t with 4 degrees of freedom is 2.776 (tables); the standard error of 1…5 is √(2.5/5)."""
    found = Interval.of(np.arange(1.0, 6.0))
    assert found.mean == 3
    assert found.high - found.mean == pytest.approx(2.776 * 0.5**0.5, rel=1e-3)
    assert found.mean - found.low == pytest.approx(found.high - found.mean)


def test_95_of_100_intervals_have_the_truth_in_them() -> None:
    """Of 4,000, give or take five standard errors of a proportion."""
    samples = np.random.default_rng(1).normal(7.0, 3.0, (4000, 5))
    inside = [found.low < 7 < found.high for found in map(Interval.of, samples)]
    assert np.mean(inside) == pytest.approx(0.95, abs=5 * (0.95 * 0.05 / 4000) ** 0.5)


def test_a_ratio_is_as_far_from_1_either_way() -> None:
    a, b = np.array([2.0, 8.0, 4.0]), np.array([1.0, 1.0, 1.0])
    up, down = Interval.of_ratio(a, b), Interval.of_ratio(b, a)
    assert up.mean == pytest.approx(4)
    assert (down.mean, down.low, down.high) == pytest.approx((1 / up.mean, 1 / up.high, 1 / up.low))


@pytest.mark.parametrize(
    ("low", "high", "holds"),
    [(1.1, 2, True), (0.5, 0.9, False), (0.5, 1, False), (0.9, 1.1, None), (1.5, 3.5, None), (3, 4, False)],
)
def test_a_check_holds_if_all_of_its_interval_does(low: float, high: float, holds: bool | None) -> None:
    assert Check("x", Interval((low + high) / 2, low, high), above=1, below=3).holds is holds


def test_what_is_not_finite_is_undecided() -> None:
    nan = float("nan")
    assert Check("x", Interval(nan, nan, nan), above=1).holds is None
    assert value(None, None, None) == "not finite"


def test_a_claim_holds_if_everything_does() -> None:
    yes, no, perhaps = (
        Check("x", Interval(m, m - 1, m + 1), above=0) for m in (2, -2, 0)
    )  # fmt: skip
    assert verdict([yes, yes]) == "holds"
    assert verdict([yes, perhaps]) == "undecided"
    assert verdict([perhaps, no, yes]) == "does not hold"


def runs(**variants: list[float]) -> Runs:
    return Runs({(name, seed): {"x": x} for name, xs in variants.items() for seed, x in enumerate(xs)})


def test_runs_are_in_the_order_of_seeds() -> None:
    found = Runs({("a", 3): {"x": 3.0}, ("a", 1): {"x": 1.0}, ("b", 1): {"x": 10.0}, ("b", 3): {"x": 30.0}})
    assert (found["b", "x"] - found["a", "x"]).tolist() == [9, 27]


def test_tuning_does_not_see_what_it_is_judged_by() -> None:
    """b is the best on average, and at the first two seeds; at the last the others are asked, which say b."""
    found = runs(a=[5, 5, 2], b=[2, 2, 4])
    assert found.tuned(["a", "b"], "x").tolist() == [2, 2, 4]
    assert found.tuned(["a"], "x").tolist() == [5, 5, 2]


def test_tuning_on_noise_gains_nothing() -> None:
    """Of ten settings that are all alike the chosen one is no better than any: its mean stays 0."""
    noise = np.random.default_rng(2).normal(size=(10, 4000))
    found = runs(**{f"v{i}": list(values) for i, values in enumerate(noise)})
    assert abs(found.tuned([f"v{i}" for i in range(10)], "x").mean()) < 5 / 4000**0.5


def test_when_a_target_was_reached() -> None:
    """From chance at 0; in between the logarithm of the loss is linear; a diverged snapshot is chance."""
    curve = pd.DataFrame(
        {"time": [1.0, 2.0, 3.0], "version": [10, 20, 30], "loss": [1.0, float("nan"), CHANCE / 4]}
    )
    assert until(1.0, curve, "time") == pytest.approx(1.0)
    assert until(CHANCE / 2, curve, "time") == pytest.approx(log(2) / log(CHANCE))
    assert until(CHANCE / 3, curve, "version") == pytest.approx(20 + 10 * log(3) / log(4))
    assert until(0.01, curve, "time") == 3.0
    assert crossing(np.array([1.0, 2.0]), np.array([-1.0, 1.0])) == 1.0


# The machinery


def seeds(scenario: Scenario) -> dict[str, float]:
    return {"seed": float(scenario.seed), "workers": float(scenario.cluster.workers)}


def made_up(**changes: object) -> Claim:
    given: dict[str, object] = {
        "name": "fan-out",
        "statement": "Seeds count up.",
        "source": "a test",
        "published": "3",
        "variants": {"few": {"cluster.workers": 2}, "many": {"cluster.workers": 5}},
        "measure": seeds,
        "checks": lambda runs: [Check("mean seed", runs.mean("few", "seed"), above=0, below=10)],
    }
    return Claim(**{**given, **changes})  # type: ignore[arg-type]


def test_every_variant_is_run_with_every_seed(tmp_path: Path) -> None:
    fractions: list[float] = []
    found = judge([made_up()], fractions.append, tmp_path, jobs=1)
    (claim,) = found["claims"]
    assert (claim["claim"], claim["seeds"], claim["runs"], claim["verdict"]) == ("fan-out", 5, 10, "holds")
    assert claim["checks"][0]["mean"] == 3
    assert found["verdicts"] == {"holds": 1, "does not hold": 0, "undecided": 0}
    assert fractions == pytest.approx([n / 10 for n in range(1, 11)])
    assert json.loads((tmp_path / "claims.json").read_text("utf-8")) == found
    assert (tmp_path / "claims.md").read_text("utf-8") == markdown(found)
    with (tmp_path / "runs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20
    assert rows[-1] == {
        "claim": "fan-out",
        "variant": "many",
        "seed": "5",
        "metric": "workers",
        "value": "5.0",
    }


@pytest.mark.slow
def test_processes_change_nothing() -> None:
    assert judge([made_up()], jobs=2) == judge([made_up()], jobs=1)


def test_what_was_measured_before_an_interruption_is_kept(tmp_path: Path) -> None:
    def interrupted(scenario: Scenario) -> dict[str, float]:
        if (scenario.cluster.workers, scenario.seed) == (5, 3):
            raise KeyboardInterrupt
        return seeds(scenario)

    with pytest.raises(KeyboardInterrupt):
        judge([made_up(), made_up(name="asynchronous-staleness", measure=interrupted)], out=tmp_path, jobs=1)
    assert len(json.loads((tmp_path / "claims.json").read_text("utf-8"))["claims"]) == 1
    assert len((tmp_path / "runs.csv").read_text("utf-8").splitlines()) == 1 + 2 * (10 + 7)


def test_a_line_of_the_table() -> None:
    checks = [
        {"what": "a", "mean": 1.0, "interval": [0.9, 1.1], "above": 0.5, "below": None, "holds": True},
        {"what": "b", "mean": 2.0, "interval": [1.0, 4.0], "above": None, "below": 0.5, "holds": False},
        {"what": "c", "mean": 2.0, "interval": [2.0, 2.0], "above": 1.0, "below": 2.0, "holds": None},
        {"what": "d", "mean": None, "interval": [None, None], "above": None, "below": None, "holds": None},
    ]
    found = {"claim": "x", "statement": "y", "source": "s", "published": "p", "checks": checks}
    *_, measured, said = row({**found, "verdict": "does not hold"})
    assert measured.splitlines() == [
        "a: 1.00 ± 0.10 (> 0.5)",
        "b: 2.0 (1.0 … 4.0) (< 0.5: no)",
        "c: 2 ± 0 (1 to 2: undecided)",
        "d: not finite",
    ]
    assert said == "does not hold"


# The command


@pytest.fixture
def command(command: Lockstep) -> Lockstep:
    return partial(command, "claims")


def test_a_claim_that_does_not_hold_is_no_failure(command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here: that the mean staleness of 8 workers is 8. It is 7."""
    staleness = CLAIMS["asynchronous-staleness"]
    wrong = made_up(
        name="asynchronous-staleness",
        variants={"8 workers": {"stop.updates": 800}},
        measure=staleness.measure,
        checks=lambda runs: [
            Check("÷ (n − 1)", runs.mean("8 workers", "relative"), 8 / 7 - 0.01, 8 / 7 + 0.01)
        ],
    )
    monkeypatch.setattr("lockstep.studies.reproductions.claims", lambda: [wrong])
    status, out, err = command("--json")
    found = json.loads(out)
    assert (status, err) == (0, "")
    assert found["verdicts"]["does not hold"] == 1
    assert found["claims"][0]["checks"][0]["mean"] == pytest.approx(1, rel=0.01)


def test_the_command_prints_a_table(command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        "lockstep.studies.reproductions.claims", lambda: [made_up(), made_up(name="hierarchy")]
    )
    status, out, err = command("--claim", "FAN", "--out", str(tmp_path / "new"))
    assert status == 0
    assert "Seeds count up." in out
    assert "1 holds, 0 does not hold, 0 undecided." in out
    assert "trying 1 claim" in err
    assert (tmp_path / "new" / "claims.md").exists()


def test_a_pattern_that_is_in_no_name(command) -> None:
    status, out, err = command("--claim", "nonsense")
    assert (status, out) == (2, "")
    assert err.startswith(
        "error: --claim: no claim has 'nonsense' in its name; claims are asynchronous-staleness"
    )


def test_from_python() -> None:
    found = lockstep.claims(["fan-out"])
    assert [row["verdict"] for row in found["claims"]] == ["holds"]
    show(found, None)


# The claims


def test_every_claim_has_a_scenario_and_every_scenario_a_claim() -> None:
    assert len(CLAIMS) == len(claims())
    assert {f"claims/{name}" for name in CLAIMS} == {name for name in shipped() if name.startswith("claims/")}


class Anything(dict[str, float]):
    def __missing__(self, metric: str) -> float:
        return 1.5


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_whole(name: str) -> None:
    """Its scenarios are valid, it has enough seeds, and its checks ask for runs that are made."""
    claim = CLAIMS[name]
    scenarios = claim.scenarios()
    assert claim.seeds >= 5
    assert all(scenario.seed == seed for (_, seed), scenario in scenarios.items())
    checks = claim.checks(Runs({key: Anything() for key in scenarios}))
    assert any(check.holds is not None for check in checks)
    assert all(row({**vars(claim), "claim": name, "checks": [], "verdict": ""})[:3])


def test_a_metric_of_learning() -> None:
    scenario = lockstep.load("claims/downpour-window", ["stop.epochs=1"])
    found = learned(scenario, target=2.0)
    assert 0 < found["loss"] <= CHANCE
    assert 0 < found["seconds"] < 10
    assert 0 < found["updates"] < 90


@pytest.mark.slow
def test_an_identity_is_one() -> None:
    (found,) = judge(chosen(["averaging-every-step"]), jobs=1)["claims"]
    assert found["verdict"] == "holds"


def test_momentum_of_one_worker_is_none() -> None:
    """And its rate is the scenario's: what is fitted is exact where nothing is random."""
    from lockstep.studies.reproductions import momentum

    scenario = lockstep.load("claims/implicit-momentum", ["cluster.workers=1"])
    path, curvature = momentum._mean_path(scenario, range(2))
    assert momentum._fitted(path, path, curvature) == pytest.approx([0.0, 0.3], abs=1e-5)


def test_what_is_idle_is_the_bubble() -> None:
    """(K − 1)/(M + K − 1) of four stages that are always alike."""
    from lockstep.studies.reproductions.pipelines import throughput

    constant = "cluster.compute={time: {distribution: constant, value: 400 ms}}"
    changes = [constant, "cluster.network={latency: 0 s}", "parallelism.micro_batches=8", "stop.steps=2"]
    found = throughput(lockstep.load("claims/pipeline-micro-batches", changes))
    assert found["idle"] == pytest.approx(100 * 3 / 11)


def test_the_page_has_every_claim() -> None:
    page = (ROOT / "docs" / "claims.md").read_text("utf-8")
    table = [line.split(" | ") for line in page.splitlines() if re.match(r"\| [a-z0-9-]+: ", line)]
    assert [cells[0].removeprefix("| ").partition(":")[0] for cells in table] == list(CLAIMS)
    assert "| " + " | ".join(HEAD) + " |" in page
    for cells, claim in zip(table, claims(), strict=True):
        assert cells[0] == f"| {claim.name}: {claim.statement}"
        assert (cells[1], cells[2]) == (claim.source, claim.published)
        assert cells[-1].removesuffix(" |") in ("holds", "does not hold", "undecided")
