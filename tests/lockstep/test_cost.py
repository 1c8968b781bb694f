"""What runs cost, against tables done by hand."""

from typing import Any

import pytest

import lockstep
from lockstep.analysis import plots
from lockstep.analysis.cost import cost, usd_per_hour
from lockstep.analysis.table import row
from lockstep.recommendation import Recommendation, space
from lockstep.recommendation.ranking import Goal, Ranked
from lockstep.recommendation.space import Candidate
from lockstep.recommendation.words import answer, worth
from lockstep.scenarios import Cluster, ScenarioError
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import scenario

COMPUTE = {"time": {"distribution": "constant", "value": "1 s"}}
A100, T4 = ({"name": name, "count": 2, "price": price} for name, price in (("a100", 2.5), ("t4", 0.5)))
OTHER = {"name": "other", "count": 2}

# workers, what else the cluster has; USD/h without servers, and with them
BY_HAND: list[tuple[int, dict[str, Any], float | None, float | None]] = [
    (4, {"price": "3 USD/h"}, 4 * 3, 5 * 3),  # a host for each worker, and one for the server
    (4, {"price": "3 USD/h", "workers_per_host": 3}, 2 * 3, 3 * 3),  # a host that is not full costs all of it
    (4, {"price": "3 USD/h", "servers": {"count": 2, "price": "0.25 USD/h"}}, 12, 12.5),
    (4, {"price": "3 USD/h", "servers": {"count": 4, "colocated": True}}, 12, 12),
    (4, {"price": "3 USD/h", "servers": {"count": 2, "hierarchy": {"groups": 2}}}, 12, 12 + 6 * 3),
    (4, {"kinds": [A100, T4], "workers_per_host": 2}, 2 * 2.5 + 2 * 0.5, None),  # what does the server cost?
    (4, {"kinds": [A100, T4], "servers": {"price": "1 USD/h"}}, 6, 7),
    (4, {"kinds": [A100, OTHER], "price": "3 USD/h", "workers_per_host": 2}, 2 * 2.5 + 3, 2 * 2.5 + 3 + 3),
    (4, {"kinds": [A100, OTHER]}, None, None),
    (4, {}, None, None),
    (4, {"price": "0 USD/h"}, 0, 0),
    (60, {"price": "1 USD/min"}, 60 * 60, 61 * 60),
]


@pytest.mark.parametrize(("workers", "more", "without", "with_servers"), BY_HAND)
def test_an_hour_of_all_hosts(
    workers: int, more: dict[str, Any], without: float | None, with_servers: float | None
) -> None:
    cluster = Cluster.model_validate({"workers": workers, "compute": COMPUTE, **more})
    assert usd_per_hour(cluster, has_servers=False) == without
    assert usd_per_hour(cluster, has_servers=True) == with_servers


def test_a_run_costs_its_hosts_for_as_long_as_it_lasts() -> None:
    """Ten rounds of one second, each of 4 × 32 samples, on five hosts of a cent a second."""
    priced = scenario(
        cluster__price="36 USD/h", cluster__compute=COMPUTE, strategy="synchronous", stop={"steps": 10}
    )
    of = lockstep.simulate(priced).metrics
    assert of["duration_s"] == pytest.approx(10)
    assert of["cost"] == pytest.approx(0.01 * 5 * 10)
    assert of["cost_of_million"] == pytest.approx(0.01 * 5 * 1e6 / 128)
    assert of["cost_to_target"] is None
    assert cost(36, 10, 128, 4.0)["cost_to_target"] == pytest.approx(0.01 * 4)
    assert "cost" not in lockstep.simulate(scenario(stop={"steps": 1})).metrics


def test_samples_that_a_failure_lost_are_paid_and_do_not_count() -> None:
    """Rounds of one second: a crash in the eighth, whose seven updates nobody had saved, and 20 s at all."""
    struck = scenario(
        cluster__price="36 USD/h",
        cluster__compute=COMPUTE,
        cluster__detect="1 s",
        cluster__faults=[{"worker": 1, "at": "7.5 s", "crash": True, "back_after": "1 s"}],
        strategy="synchronous",
        recovery={"on_failure": "restart"},
        stop={"time": "20 s"},
    )
    of = lockstep.simulate(struck).metrics
    assert of["lost_samples"] >= 7 * 128
    assert of["throughput"] > of["goodput"]
    assert of["cost_of_million"] == pytest.approx(0.01 * 5 * 1e6 / of["goodput"])


@pytest.mark.slow
def test_the_table_of_a_sweep_says_what_each_point_costs(command: Lockstep, sizes_only: Any) -> None:
    priced = ("--set", "cluster.price=36 USD/h", "--set", "sweep={cluster.workers: [1, 2]}", "--jobs", 1)
    heads = fine(command("sweep", sizes_only, *priced)).split("───")[0]
    assert "million" in heads
    assert "million" not in fine(command("sweep", sizes_only, *priced[2:])).split("───")[0]


def test_a_price_stays_what_it_is(tmp_path: Any) -> None:
    from lockstep.scenarios import dump

    file = tmp_path / "priced.yaml"
    file.write_text(dump(scenario(cluster__price="24.48 USD/h")))
    assert lockstep.load(file).cluster.price == 24.48
    assert "price: 24.48 USD/h" in file.read_text()


@pytest.mark.parametrize("wrong", [3, "3 USD", "3 EUR/h", "-1 USD/h", "3 MB/h"])
def test_a_price_has_a_unit(wrong: Any) -> None:
    with pytest.raises(ScenarioError, match=r"cluster\.price: .*24\.48 USD/h"):
        lockstep.load("sizes-only", [f"cluster.price={wrong}"])


def rows(**more: Any) -> tuple[dict[str, Any], ...]:
    common = {"status": "ok", "accuracy": 0.5, "loss": 1.0, "hosts": 2, "stop.time": 1.0}
    return ({**common, "time_to_target_s": 30.0, "throughput": 100.0, **more},)


def test_who_costs_too_much_is_worth_nothing() -> None:
    who = Candidate("asynchronous")
    (dear,), (cheap,) = rows(cost_to_target=6.0, cost_of_million=60.0), rows(cost_to_target=5.0)
    assert Goal("cost", True).value(dear) == 6.0
    assert Goal("cost", False).value(dear) == 60.0
    assert Goal("time", True, 5.0).value(dear) is None
    assert Goal("time", True, 5.0).value(cheap) == 30.0
    assert Goal("throughput", False, 59.0).value(dear) is None
    assert worth(Ranked(who, (dear,), Goal("time", True, 5.0))) == "more than 5 USD"


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_the_cheapest_and_the_fastest_that_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers on a host: with all-reduce half the hosts and no server are the cheapest, all the fastest.

    A million samples: of four workers 1e6 / 128 s on two hosts, of two 1e6 / 64 s on one.
    """
    monkeypatch.setattr(space, "_WORKERS", (1, 1 / 2))
    what = scenario(
        **{"cluster__price": "36 USD/h", "cluster__workers_per_host": 2, "cluster__compute": COMPUTE},
        cluster__network={"bandwidth": "1 Gbit/s", "intra_host": {"bandwidth": "1 TB/s"}},
        workload__parameters=12_500_000,  # a tenth of a second between hosts
    )
    cheapest = Recommendation(what, "cost", ["all-reduce"], 1).run(8)
    assert cheapest.ranking[0].mean == pytest.approx(0.01 * 1e6 / 64, rel=0.01)
    assert cheapest.best.cluster.workers == 2
    most = Recommendation(what, "throughput", ["all-reduce"], 1, "160 USD").run(8)
    assert most.best.cluster.workers == 2
    assert "for 160 USD at most" in answer(most)[0]
    none = Recommendation(what, "throughput", ["all-reduce"], 1, "1 USD").run(4)
    assert answer(none) == [
        "Nothing that was found takes 1 USD or less for a million samples; "
        "the least that a run took is 156.3 USD."
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--target", "cost"), "cluster.price: what a host costs is not known"),
        (("--at-most", "5 USD"), "cluster.price: what a host costs is not known"),
        (
            ("--at-most", "5"),
            "--at-most: '5' is not an amount of money; write an amount of money with its unit",
        ),
    ],
)
def test_bad_input(command: Lockstep, sizes_only: Any, options: tuple[str, ...], said: str) -> None:
    ended = command("recommend", sizes_only, *options)
    assert ended.status == 2
    assert said in ended.err


def test_time_against_cost() -> None:
    import pandas as pd

    table = pd.DataFrame([
        row(lockstep.simulate(scenario(cluster__price=price, cluster__workers=workers, stop={"steps": 3})))
        for price, workers in (("3 USD/h", 2), ("3 USD/h", 4))
    ])  # fmt: skip
    (ax,) = plots.pareto(table).axes
    assert (ax.get_title(), ax.get_xlabel()) == ("Time against cost", "cost of a million samples (USD)")
    (ax,) = plots.pareto(table.drop(columns="cost_of_million")).axes
    assert ax.get_title() == "Time against machine time"
