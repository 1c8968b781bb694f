"""What messages and gradients take of this machine's cores, in predictions for its loopback."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep import loopback, validation
from lockstep.calibration import compute
from lockstep.calibration.compute import Gradient
from lockstep.loopback import Loopback
from tests.support.scenarios import scenario

HERE = Loopback(1e-4, 1e9, 2e-4, 5e-5, 1e-10, cores=2)
LEARNS = {"dataset": "digits", "model": "mlp", "batch_size": 16}


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Workloads of which gradients were timed, 7 ms each, with a backward pass of 0.6 of that."""
    seen: list[Any] = []

    def a_few(workload: Any, _: str) -> Gradient:
        seen.append(workload)
        return Gradient(7e-3, 0.6, "cpu")

    monkeypatch.setattr(validation, "a_few", a_few)
    return seen


def test_messages_and_real_gradients_share_the_cores(timed: list[Any]) -> None:
    there = validation.on_loopback(scenario(workload=LEARNS, stop={"steps": 3}), HERE)
    costs = there.cluster.network.processing
    assert costs is not None
    assert (costs.per_message, costs.per_byte, costs.cores, costs.gradient) == (5e-5, 1e-10, 2, 7e-3)
    assert len(timed) == 1
    free = validation.on_loopback(scenario(workload=LEARNS, stop={"steps": 3}), Loopback(1e-4, 1e9, 2e-4))
    slow, fast = (lockstep.simulate(each).metrics["throughput"] for each in (there, free))
    assert slow < 0.8 * fast  # four workers whose 10 ms need 14


@pytest.mark.parametrize(
    ("workers", "time", "expected"),
    [
        (4, {"distribution": "constant", "value": "13 ms"}, True),  # two cores take 14 for all four
        (4, {"distribution": "constant", "value": "15 ms"}, False),
        (1, {"distribution": "constant", "value": "7.5 ms"}, False),
        (1, {"distribution": "lognormal", "mean": "9 ms", "cv": 0.2}, True),  # some draws are shorter than 7
    ],
)
def test_overruns_are_expected_where_the_cores_are_too_slow(
    workers: int, time: dict[str, Any], expected: bool, timed: list[Any]
) -> None:
    config = scenario(workload=LEARNS, cluster__workers=workers, cluster__compute={"time": time})
    assert validation.overruns_expected(validation.on_loopback(config, HERE)) == expected
    assert not validation.overruns_expected(validation.on_testbed(config))


@pytest.mark.parametrize(
    "changes", [{}, {"workload": LEARNS, "parallelism": {"pipeline": 2}, "strategy": "all-reduce"}]
)
def test_who_computes_no_whole_gradients_is_not_timed(changes: dict[str, Any], timed: list[Any]) -> None:
    costs = validation.on_loopback(scenario(**changes), HERE).cluster.network.processing
    assert costs is not None
    assert costs.gradient == 0
    assert not timed


def test_gradients_of_a_gpu_take_nothing_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "a_few", lambda *_: Gradient(7e-3, 0.6, "a GPU"))
    there = validation.on_loopback(scenario(workload=LEARNS, cluster__compute="measured"), HERE)
    costs, given = there.cluster.network.processing, there.cluster.compute
    assert costs is not None
    assert (costs.gradient, given.time.value, given.backward) == (0, 7e-3, 0.6)


def test_what_messages_take_is_read_off_what_the_processes_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 messages: empty ones leave 1 ms, and take 0.7 ms of the cores; 4 MB more 2 ms, and 4 ms."""

    def run(parameters: int, workers: int, strategy: str) -> Any:
        exchange, core_s = (3e-3, 80 * 4.7e-3) if parameters > 1 else (1e-3, 80 * 0.7e-3)
        steps = [{"event": "gradient", "start": k * (0.01 + exchange)} for k in range(40)]
        answers = [{"event": "message", "kind": "parameters", "start": k * 3e-4} for k in range(80)]
        records = pd.DataFrame([{**each, "end": each["start"] + 0.01} for each in steps] + answers)
        return SimpleNamespace(records=records, core_s=core_s)

    monkeypatch.setattr(loopback, "_paced_run", run)
    found = loopback.measure_loopback(10)
    assert (found.overhead, found.latency) == pytest.approx((3e-4, 2e-4))
    assert found.bandwidth == pytest.approx(2 * 4e6 / 2e-3)
    assert found.per_message == pytest.approx((0.7e-3 - 0.3e-3) / 2)
    assert found.per_byte == pytest.approx(4e-3 / 2 / 4e6)


@pytest.mark.parametrize("loaders", [0, 1])
def test_reading_is_part_of_a_gradient_unless_others_read(
    loaders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Learner:
        """Its gradients say which mini-batches they read themselves."""

        here = 0 if loaders else None  # the first one

        def initial(self) -> Any:
            return SimpleNamespace(to=lambda _: None)

        def read_ahead(self, *_: Any) -> None:
            ahead.append(True)

        def end_reading(self) -> None: ...

        def batch(self, replica: int, step: int) -> None:
            assert ahead, "nobody reads ahead"
            self.here = step

        def gradient(self, _: Any, replica: int, step: int, ready: Any) -> None:
            read.append(step != self.here)

    read: list[bool] = []
    ahead: list[bool] = []
    monkeypatch.setattr(compute, "build", lambda *_: Learner())
    found = compute._a_few(SimpleNamespace(readers=loaders), "cpu")  # type: ignore[arg-type]
    assert (found.reading is not None) is bool(loaders)
    assert read == [not loaders] * 12
