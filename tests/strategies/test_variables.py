"""`placement: by-variable`: servers hold whole variables in turn; the numbers are those of even shards."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep import Scenario, ScenarioError
from lockstep.strategies.parts import cut, dealt, divided, length, places, taken, together
from tests.support.scenarios import scenario

B = 1e6  # bytes/s
MLP = {"dataset": "digits", "model": "mlp", "batch_size": 16}
CNN = {**MLP, "model": "cnn"}
BY_VARIABLE = {"count": 3, "placement": "by-variable"}


def placed(servers: Any, strategy: Any = "synchronous", **changes: Any) -> Scenario:
    return scenario(cluster__servers=servers, strategy=strategy, **{"workload": MLP, **changes})


def pushed(run: lockstep.Result) -> list[int]:
    """Bytes that each server has from worker 0 for a mini-batch."""
    records = run.records
    pushes = records[(records["kind"] == "push") & (records["node"] == 0)]
    found = pushes.groupby("peer")["nbytes"].sum() // pushes.groupby("peer").size()
    return [int(nbytes) for nbytes in found]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.integers(1, 12),
    st.integers(1, 5),
    st.none() | st.integers(1, 9),
)
def test_parts_come_together_again(lengths: list[int], count: int, pieces: int, most: int | None) -> None:
    ends = np.cumsum([0, *lengths]).tolist()
    runs = [slice(a, b) for a, b in pairwise(ends)]
    parts = [part for part in dealt(runs, min(count, len(runs)), most) if part]
    if most is None:
        assert [length(part) for part in parts] == [sum(lengths[s :: len(parts)]) for s in range(len(parts))]
    smaller = [piece for part in parts for piece in divided(part, pieces)]
    vector, join = np.arange(ends[-1]), np.concatenate
    for each in (parts, smaller):
        bodies = [taken(vector, part, join) for part in each]
        assert np.array_equal(together(bodies, places(each), join), vector)


def test_one_server_has_one_run() -> None:
    """And so no vector is put together that is there as a whole."""
    runs = cut(100, [1, 2, 3])
    assert dealt(runs, 1) == [(slice(0, 100),)]
    assert places(dealt(runs, 1)) == []


def test_variables_in_turn() -> None:
    """The digits' mlp is 64 × 64 and 64, 64 × 10 and 10: of three servers the first has the last bias too."""
    run = lockstep.simulate(placed(BY_VARIABLE))
    tensors = [64 * 64, 64, 64 * 10, 10]
    assert sum(tensors) == run.plan.sizes.parameters
    assert pushed(run) == [4 * (64 * 64 + 10), 4 * 64, 4 * 640]


def test_large_variables_are_split() -> None:
    """As MXNet has it: of the first weight every server has a third, and the others are in turn as before."""
    run = lockstep.simulate(placed({**BY_VARIABLE, "split_above": 1000}))
    assert pushed(run) == [4 * (1365 + 10), 4 * (1365 + 64), 4 * (1366 + 640)]
    whole = lockstep.simulate(placed(BY_VARIABLE))
    assert np.array_equal(run.parameters, whole.parameters)


def test_variables_alike_are_even_shards() -> None:
    """The very records, where every server gets as many of one size; else the largest sum of variables."""
    sizes = {"cluster__network": {"bandwidth": "1 MB/s"}, "stop": {"updates": 4}}
    alike = {"parameters": 12_000, "layers": 12}
    for strategy in ("synchronous", "asynchronous", {"name": "ssp", "codec": "1-bit"}):
        found = [
            lockstep.simulate(placed({"count": 4, "placement": placement}, strategy, workload=alike, **sizes))
            for placement in ("even", "by-variable")
        ]
        assert found[0].records.equals(found[1].records)


@pytest.mark.parametrize("servers", [1, 2, 3, 5, 7])
def test_the_server_with_the_largest_variables_bounds_the_step(servers: int) -> None:
    """2·N·max(Mₛ)/B, with 7 layers of 1 MB on S servers: the first has ⌈7/S⌉ of them."""
    run = lockstep.simulate(
        placed(
            {"count": servers, "placement": "by-variable"},
            workload={"parameters": 7 * 250_000, "layers": 7},
            cluster__network={"bandwidth": "1 GB/s", "server_bandwidth": "1 MB/s"},
            cluster__compute={"time": {"distribution": "constant", "value": "0 s"}}, stop={"updates": 3},
        )
    )  # fmt: skip
    assert pushed(run) == [10**6 * len(range(s, 7, servers)) for s in range(servers)]
    updates = run.records[run.records["event"] == "update"]
    ends = np.unique(updates.loc[updates["node"] == run.plan.owners.ranks[0], "end"])
    assert np.diff(ends) == pytest.approx(2 * 4 * -(-7 // servers) * 1e6 / B)


STRATEGIES: list[Any] = [
    {"name": "synchronous", "momentum": 0.9},
    {"name": "synchronous", "chunks": 3, "optimizer": "adam"},
    {"name": "synchronous", "codec": "bf16", "answer_codec": "fp16", "chunks": 2},
    {"name": "p3", "units": 2, "slice_size": 1000},
    {"name": "k-batch-sync", "k": 4},
    {"name": "model-averaging", "averaging_period": 2, "momentum": 0.9, "optimizer_state": "average"},
    {"name": "bmuf", "averaging_period": 2},
    {"name": "easgd", "communication_window": 2},
    {"name": "downpour", "server_optimizer": "adagrad"},
    {"name": "ssp", "bound": 1},
    {"name": "dc-asgd"},
    {"name": "aeasgd", "communication_window": 2},
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: "-".join(map(str, strategy.values())))
def test_no_number_depends_on_where_it_is(strategy: Any) -> None:
    """Update rules, and these codecs, take each number by itself; the network takes no time here."""
    found = [
        lockstep.simulate(placed({"count": 3, "placement": placement}, strategy, workload=CNN))
        for placement in ("even", "by-variable")
    ]
    assert np.array_equal(found[0].parameters, found[1].parameters)
    assert found[0].metrics == found[1].metrics


@pytest.mark.parametrize("split", [{"pipeline": 2}, {"tensor": 2}], ids=str)
def test_each_stage_has_its_own_variables(split: Any) -> None:
    found = [
        lockstep.simulate(placed({"count": 2, "placement": placement}, parallelism=split))
        for placement in ("even", "by-variable")
    ]
    assert np.array_equal(found[0].parameters, found[1].parameters)
    if "pipeline" in split:
        assert [group.shards for group in found[1].plan.groups] == [
            [(slice(0, 4096),), (slice(4096, 4160),)], [(slice(0, 640),), (slice(640, 650),)]
        ]  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(
    "strategy", [{"name": "synchronous", "chunks": 2, "codec": "1-bit"}, {"name": "p3", "units": 2}], ids=str
)
def test_both_engines_place_variables(strategy: Any) -> None:
    config = placed(BY_VARIABLE, strategy, cluster__workers=2)
    predicted, measured = lockstep.simulate(config), lockstep.run(config)
    assert np.array_equal(predicted.parameters, measured.parameters)
    assert predicted.metrics["bytes_sent"] == measured.metrics["bytes_sent"]
    assert pushed(predicted) == pushed(measured)


@pytest.mark.parametrize(
    ("servers", "changes", "message"),
    [
        ({**BY_VARIABLE, "count": 5}, {}, "count: must be at most 4, the number of variables, with"),
        ({**BY_VARIABLE, "count": 3}, {"parallelism": {"pipeline": 2}}, "at most 2, .* variables of a stage"),
        ({**BY_VARIABLE, "count": 2}, {"workload": {"parameters": 9}}, "at most 1, the number of variables"),
    ],
)
def test_what_is_refused(servers: Any, changes: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        lockstep.simulate(placed(servers, **changes))


def test_shares_are_of_even_shards() -> None:
    with pytest.raises(ValueError, match="must be even with shares, not by-variable"):
        placed({**BY_VARIABLE, "shares": [1, 2, 3]})
    with pytest.raises(ValueError, match="is for whole variables: give placement: by-variable"):
        placed({"count": 3, "split_above": 1000})
