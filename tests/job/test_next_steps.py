"""With which mini-batch workers go on after a restart: that after those which are in the parameters."""

from typing import Any

import pytest

from lockstep.analysis.records import of
from lockstep.studies.chaos.invariants import broken
from tests.support.failing import simulated

CRASH = {"worker": 2, "at": "3 s", "crash": True, "back_after": "2 s"}
BACK = 5.0  # s
COPIES: dict[str, Any] = {
    "strategy": {"name": "compute-groups", "groups": 2},
    "cluster": {"servers": {"count": 1, "copies": 2}},
    "stop": {"steps": 50},
}
UNEVEN = {"compute": {"time": {"distribution": "exponential", "mean": "100 ms"}}}


def test_a_shard_in_copies_has_each_workers_mini_batches_in_one() -> None:
    whole, failed = simulated(every=5, **COPIES), simulated(CRASH, every=5, **COPIES)
    assert not [*broken(failed)]
    assert failed.metrics["failures"] == 1
    assert failed.metrics["samples"] == whole.metrics["samples"]


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("strategy", [{"name": "k-batch-sync", "k": 3}, {"name": "k-sync", "k": 2}])
def test_a_mini_batch_that_is_in_the_parameters_is_not_computed_again(
    strategy: dict[str, Any], servers: int
) -> None:
    """Though others before it were given up, and so are in none."""
    cluster = {**UNEVEN, "servers": servers, "network": {"bandwidth": "10 Mbit/s"}}
    found = simulated(CRASH, strategy=strategy, every=5, cluster=cluster, stop={"steps": 120})
    assert not [*broken(found)]
    gradients = of(found.records, "gradient", ["node", "start", "end", "version", "kind"])
    pushes = of(found.records, "message", ["node", "peer", "start", "end", "kind"])
    pushes = pushes[(pushes["kind"] == "push") & (pushes["peer"] == 4)]
    updates = of(found.records, "update", ["node", "end"])
    updates = updates[updates["node"] == 4]
    kept = updates["end"][updates["end"] < BACK].max()  # of the last version that the checkpoint has
    for worker in range(4):
        its = gradients[gradients["node"] == worker]
        last = pushes[(pushes["node"] == worker) & (pushes["end"] <= kept)]["start"].max()
        saved = its["version"][its["end"] <= last].max()
        again = its["version"][its["start"] >= BACK].min()
        assert again == saved + 1
