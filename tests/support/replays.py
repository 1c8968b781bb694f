"""What tests of replays have in common: a job, and what its order decides."""

from typing import Any

from lockstep import Result, Scenario
from lockstep.analysis.records import of
from tests.support.scenarios import scenario

UPDATE = ["node", "version", "peer", "staleness", "batches"]


def learning(strategy: str | dict[str, Any], **changes: Any) -> Scenario:
    """A noisy problem: what comes of it depends on the order of the updates."""
    return scenario(
        **{
            "cluster__compute": {"time": {"distribution": "exponential", "mean": "3 ms"}},
            "cluster__network": {"bandwidth": "20 MB/s", "latency": "1 ms"},
            "cluster__servers": 2,
            "workload": {"problem": "logistic"},
            "stop": {"steps": 8},
            "strategy": strategy,
            **changes,
        }
    )


def updates(result: Result) -> list[list[int]]:
    found = of(result.records, "update", UPDATE)
    return found.sort_values(UPDATE).to_numpy().tolist()
