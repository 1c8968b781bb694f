"""`lockstep recommend` of a file whose strategy takes factors from others."""

import pytest

import lockstep
from lockstep.recommendation import space
from lockstep.recommendation.show import as_json
from lockstep.strategies import STRATEGIES
from tests.support.recommending import cluster, found

COMPOSED = {"name": "ssp-blocking", "bound": 2, "correction": "dc-asgd", "codec": "int8", "compensation": 0.1}


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_the_factors_of_the_file_stay_with_its_strategy() -> None:
    what = cluster(0.01, strategy=COMPOSED)
    result = found(what, "ssp-blocking", "asynchronous", budget=60)
    own = result.own
    assert own is not None
    assert own.label == "ssp-blocking correction=dc-asgd bound=2"
    there = space.apply(what, own)
    assert dict(there.strategy.parameters) == {key: v for key, v in COMPOSED.items() if key != "name"}
    ours = [each for each in as_json(result)["ranking"] if each["as_in_the_file"]]
    assert [each["label"] for each in ours] == [own.label]
    assert ours[0]["settings"]["strategy.correction"] == "dc-asgd"
    # the plain one is tried beside it, and has neither the factor nor what belongs to that
    plain = {each for each in result.search_.rows if each.family == "ssp-blocking"}
    assert plain
    for each in plain:
        assert {"correction", "compensation"}.isdisjoint(space.apply(what, each).strategy.parameters)
    table = result.table
    assert set(table["strategy.correction"].dropna()) == {"dc-asgd"}
    assert table.loc[table["strategy.name"] == "asynchronous", "strategy.correction"].isna().all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factors", "family"),
    [
        ({"name": "asynchronous", "worker_loop": "downpour"}, "asynchronous worker_loop=downpour"),
        ({"name": "synchronous", "consistency": "k-batch-async"}, "synchronous consistency=k-batch-async"),
        (
            {"name": "asynchronous", "correction": "staleness-aware"},
            "asynchronous correction=staleness-aware",
        ),
        ({"name": "asynchronous", "correction": "asynchronous"}, "asynchronous"),  # its own
        (
            {"name": "all-reduce", "correction": "dc-asgd"},
            "all-reduce",
        ),  # no server
    ],
)
def test_every_factor_is_searched_with_what_belongs_to_it(factors: dict[str, str], family: str) -> None:
    what = cluster(0.01, strategy=factors)
    spaces, left_out = space.spaces(what, "throughput")
    assert family in spaces
    assert {*spaces, *left_out} - {family} == set(STRATEGIES) - ({family} & set(STRATEGIES))
    if factors.get("worker_loop") == "downpour":
        assert "strategy.communication_window" in spaces[family].knobs
    if factors.get("correction") == "staleness-aware":
        assert left_out["staleness-aware"] == f"another name for {family}"
    ran = lockstep.simulate(space.apply(what, spaces[family].candidate(spaces[family].start)))
    plain = lockstep.simulate(what)
    assert ran.metrics["bytes_sent"] == plain.metrics["bytes_sent"]


def test_the_shipped_composition_is_recommended_against_as_itself() -> None:
    what = lockstep.load("strategies/composed")
    name = what.strategy.name
    spaces, _ = space.spaces(what, "throughput", [name])
    assert set(spaces) == {f"{name} correction=dc-asgd", name}
