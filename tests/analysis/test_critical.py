"""The critical path of an iteration, against closed forms."""

import pandas as pd
import pytest

import lockstep
from lockstep.analysis import plots
from lockstep.analysis.critical import CriticalPath, critical_path
from tests.support.scenarios import scenario

COMPUTE, MESSAGE, LATENCY, APPLY = 0.01, 0.002, 0.003, 0.004  # s; a message of 4 kB through a card
NETWORK = {"bandwidth": f"{4000 / MESSAGE} B/s", "latency": f"{LATENCY} s"}


def path(**changes: object) -> CriticalPath:
    found = critical_path(lockstep.simulate(scenario(**changes)))
    assert found is not None
    edges = [found.parts[0].start, *[part.end for part in found.parts]]
    assert edges[:-1] == pytest.approx([part.start for part in found.parts])  # without gaps
    assert sum(found.shares.values()) == pytest.approx(1)
    return found


def seconds(found: CriticalPath) -> dict[str, float]:
    return {what: share * found.seconds for what, share in found.shares.items()}


def test_a_star_computes_pushes_updates_and_pulls() -> None:
    found = path(
        cluster__network=NETWORK,
        cluster__apply_overhead=f"{APPLY} s",
        strategy="synchronous",
        stop={"steps": 3},
    )
    expected = {"computing": COMPUTE, "network": 8 * MESSAGE + 2 * LATENCY, "server's update": APPLY}
    assert seconds(found) == pytest.approx(expected)
    assert [part.what for part in found.parts] == ["computing", "network", "server's update", "network"]
    assert (found.hidden, found.exposed) == pytest.approx((0, 8 * MESSAGE + 2 * LATENCY))


def test_the_straggler_is_on_the_path() -> None:
    slow = [{"worker": 2, "slowdown": 3}]
    found = path(
        cluster__network=NETWORK, cluster__stragglers=slow, strategy="synchronous", stop={"steps": 3}
    )
    assert found.parts[0].node == 2
    assert seconds(found) == pytest.approx({"computing": 3 * COMPUTE, "network": 5 * MESSAGE + 2 * LATENCY})


def test_at_a_busy_server_the_path_goes_through_the_updates_of_others() -> None:
    """Each update takes 40 ms, so a worker waits for those of all four, of which its own push is the last."""
    found = path(cluster__apply_overhead="40 ms", stop={"steps": 4})
    assert seconds(found) == pytest.approx({"server's update": 0.16})


@pytest.mark.parametrize(("stages", "micro"), [(4, 8), (2, 3)])
def test_a_pipeline_takes_as_many_ticks_as_micro_batches_and_stages_but_one(stages: int, micro: int) -> None:
    found = path(
        cluster__workers=stages,
        parallelism={"pipeline": stages, "micro_batches": micro, "order": "gpipe"},
        workload={"parameters": 1000, "layers": stages, "batch_size": 2 * micro, "activation": "1 kB"},
        strategy="all-reduce",
        stop={"steps": 3},
    )
    assert seconds(found) == pytest.approx({"computing": (micro + stages - 1) * COMPUTE / stages / micro})


def test_what_is_sent_during_the_backward_pass_is_hidden() -> None:
    """Two buckets: the first, 2·3 messages of 250 parameters a round, begins 4.5 ms before the pass ends."""
    found = path(
        cluster__network=NETWORK,
        cluster__compute={"time": {"distribution": "constant", "value": "10 ms"}, "backward": 0.9},
        strategy={"name": "all-reduce", "buckets": 2},
        stop={"steps": 3},
    )
    ring = 12 * (MESSAGE / 8 + LATENCY)
    assert seconds(found) == pytest.approx({"computing": 0.0055, "network": ring})
    assert (found.hidden, found.exposed) == pytest.approx((0.0045, ring - 0.0045))


def test_a_lone_worker_computes() -> None:
    found = path(cluster__workers=1, strategy="all-reduce", stop={"steps": 1})
    assert (found.iteration, found.shares) == (0, {"computing": 1.0})


def test_the_picture_says_the_shares_and_marks_the_chain() -> None:
    config = scenario(cluster__network=NETWORK, strategy="synchronous", stop={"steps": 3})
    figure = plots.critical([lockstep.simulate(config)])
    said = figure.axes[0].get_title(loc="left")
    assert "69% network, 31% computing" in said.replace("\n", " ")
    assert (
        "0% of the mean worker's messages hide behind its computing; 22 ms do not" in figure.get_supxlabel()
    )
    with pytest.raises(plots.Unfit):
        plots.critical([])


def test_records_without_a_gradient_have_no_path() -> None:
    result = lockstep.simulate(scenario())
    empty = result.records.iloc[:0]
    assert isinstance(empty, pd.DataFrame)
    assert critical_path(type(result)(**{**result.__dict__, "records": empty})) is None
