"""Every worker loop whose runs depend on who is first: real runs against their predictions.

The others end with the same parameters in both engines (test_contract.py). Nothing is learned here, so that
two cores stand for four workers: processes sleep for what they draw.
"""

import pytest

import lockstep
from lockstep import Scenario, validation
from lockstep.loopback import Loopback, measure_loopback
from lockstep.strategies import find
from tests.contract.rows import ROWS, Row
from tests.support.nightly import drawn
from tests.support.pace import longer
from tests.support.scenarios import scenario

pytestmark = [pytest.mark.real, pytest.mark.alone]

STEPS = 50


def takes_time(row: Row) -> bool:
    """What a correction does with a push takes next to none: it is that of the strategy without."""
    values = dict(row.strategy)
    return not row.deterministic and find(values.pop("name"), values).correction is None


def kind(row: Row) -> str:
    """Where the loop of its workers is: with servers, on steps by themselves, with peers, on a memory."""
    values = dict(row.strategy)
    return find(values.pop("name"), values).worker_loop.__module__


def timed(row: Row) -> Scenario:
    return scenario(
        cluster__servers=row.servers,
        cluster__compute={"time": {"distribution": "lognormal", "mean": longer(50), "cv": 0.4}},
        cluster__stragglers=[{"worker": 3, "slowdown": 1.5}],
        strategy=row.strategy,
        stop={"steps": STEPS},
    )


@pytest.fixture(scope="module")
def loopback() -> Loopback:
    return measure_loopback(1000)


@pytest.mark.parametrize("row", drawn(filter(takes_time, ROWS), one_in=6, family=kind), ids=str)
def test_throughput_and_staleness_are_predicted(row: Row, loopback: Loopback) -> None:
    config = timed(row)
    predicted = lockstep.simulate(validation.on_loopback(config, loopback))
    for attempt in range(3):  # the machine may be shared, and was perhaps when the loopback was measured
        error = validation.compare(predicted, lockstep.run(config))["error"]
        if max(abs(error["throughput"]), error["staleness_ks"]) < 0.1 or attempt == 2:
            break
        predicted = lockstep.simulate(validation.on_loopback(config, measure_loopback(1000)))
    assert abs(error["throughput"]) < 0.1
    assert error["staleness_ks"] < 0.1
