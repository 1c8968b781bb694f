"""The picture of a pipeline, and passes in other pictures, timelines and figures."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lockstep
from lockstep.analysis import plots
from lockstep.analysis.arrows import arrows
from lockstep.analysis.pipeline import Step
from lockstep.analysis.tensorboard import scalars
from tests.support.scenarios import scenario
from tests.support.traces import written

ORDERS = ["gpipe", "1f1b", "interleaved", "zero-bubble"]
NETWORK = {"bandwidth": "1 Gbit/s", "latency": "50 us"}


def piped(order: str = "1f1b", stages: int = 4, micro_batches: int = 8, **changes: Any) -> lockstep.Result:
    """Three mini-batches of one replica: 300 ms of work a device, a third of it forward."""
    split = {"pipeline": stages, "micro_batches": micro_batches, "order": order}
    return lockstep.simulate(
        scenario(
            **{
                "cluster__workers": stages,
                "cluster__compute": {
                    "time": {"distribution": "constant", "value": "1.2 s"},
                    "backward": 2 / 3,
                },
                "workload": {"parameters": 1000, "batch_size": 16, "activation": "8 MB"},
                "parallelism": split | {"chunks": 2 if order == "interleaved" else 1},
                "strategy__name": "all-reduce",
                "stop__steps": 3,
                **changes,
            }
        )
    )


def passes(result: lockstep.Result) -> pd.DataFrame:
    return result.records[result.records["event"] == "pass"]


# --- the picture --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_all_passes_of_the_second_mini_batch_are_cells(order: str) -> None:
    result = piped(order, cluster__network=NETWORK)
    done = passes(result)
    done = done[done["version"] == 1]
    cells = Step(result).cells
    assert Counter(cells["stage"]) == Counter(done["node"])
    assert sorted(zip(cells["stage"], cells["start"], cells["number"], strict=True)) == sorted(
        zip(done["node"], done["start"], done["batches"], strict=True)
    )
    (ax,) = plots.pipeline([result]).axes
    drawn = [bars for bars in ax.collections if "ward" in str(bars.get_label())]
    assert sum(len(bars.get_paths()) for bars in drawn) == len(cells)
    written = Counter(text.get_text() for text in ax.texts if text.get_text().isdigit())
    assert written == Counter(map(str, cells["number"]))


@pytest.mark.parametrize("order", ORDERS)
def test_the_share_of_bubbles_is_what_no_pass_fills(order: str) -> None:
    result = piped(order, cluster__network=NETWORK)
    starts = passes(result).groupby("version")["start"].min()
    work_s = 4 * 0.3
    expected = 1 - work_s / (4 * (starts[2] - starts[1]))
    assert Step(result).bubbles == pytest.approx(expected, rel=1e-9)
    (ax,) = plots.pipeline([result]).axes
    assert ax.get_title(loc="right") == f"bubbles {expected:.1%}"


@pytest.mark.parametrize(
    ("order", "bubbles"),  # of K = 4 and M = 8, F = B / 2: (K - 1) / (M + K - 1), chunks or W in between
    [("gpipe", 3 / 11), ("1f1b", 3 / 11), ("interleaved", 1.5 / 9.5), ("zero-bubble", 3 / 27)],
)
def test_bubbles_without_a_network_are_the_papers(order: str, bubbles: float) -> None:
    assert Step(piped(order)).bubbles == pytest.approx(bubbles, rel=1e-9)


def test_a_run_of_one_mini_batch_is_drawn_to_its_update() -> None:
    step = Step(piped(stop__steps=1))
    assert step.first == step.last == 0
    assert step.bubbles == pytest.approx(3 / 11, rel=1e-9)


def test_what_stages_keep_is_below_their_cells() -> None:
    step = Step(piped("1f1b"))
    assert [step.kept(stage)[1].max() for stage in range(4)] == [4e6, 3e6, 2e6, 1e6]
    assert all(step.kept(stage)[1][-1] == 0 for stage in range(1, 4))  # stage 0 ends with the step
    (ax,) = plots.pipeline([piped("1f1b")]).axes
    assert [text.get_text() for text in ax.texts if "MB" in text.get_text()] == [
        "4 MB",
        "3 MB",
        "2 MB",
        "1 MB",
    ]


def test_runs_share_their_axis_and_say_in_what_they_differ() -> None:
    figure = plots.pipeline([piped(order) for order in reversed(ORDERS)], width=plots.style.SINGLE)
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        "1f1b", "gpipe", "interleaved, 2 chunks", "zero-bubble",
    ]  # fmt: skip
    assert len({ax.get_xlim() for ax in figure.axes}) == 1
    assert figure.get_suptitle() == ""
    assert figure.legends[0].get_title().get_text() == "predicted, 4 stages, 8 micro-batches"
    sizes = [text.get_fontsize() for ax in figure.axes for text in ax.texts]
    assert min(sizes) >= 6


def test_without_a_flush_micro_batches_are_counted_through() -> None:
    result = piped(micro_batches=1, strategy__name="pipedream", stop__steps=20)
    step = Step(result)
    assert not step.flush
    assert step.bubbles == pytest.approx(0, abs=1e-9)
    assert {4, 11} <= {*step.cells["number"]}
    assert len(plots.pipeline([result]).axes) == 1


def test_replicas_not_drawn_are_counted() -> None:
    result = piped(cluster__workers=8, cluster__network=NETWORK)
    assert "1 more replica" in plots.pipeline([result]).get_supxlabel()


def test_without_passes_there_is_no_such_picture() -> None:
    with pytest.raises(plots.Unfit, match="passes"):
        plots.pipeline([lockstep.simulate(scenario())])


# --- timelines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_each_pass_is_a_slice_and_leads_to_the_next(order: str, tmp_path: Path) -> None:
    result = piped(order, cluster__network=NETWORK)
    done, trace = passes(result), written(tmp_path, result)
    slices = [event for event in trace if event["ph"] == "X" and event["cat"] == "pass"]
    letters = {"forward": "F", "backward": "B", "backward-inputs": "B", "backward-weights": "W"}
    columns = done[["kind", "version", "batches", "peer", "nbytes"]].itertuples(index=False)
    assert Counter((s["name"], *s["args"].values()) for s in slices) == Counter(
        (
            f"{letters[kind]} {micro}{f'.{piece // 4}' * (order == 'interleaved')}",
            step,
            micro,
            piece // 4,
            kept,
        )
        for kind, step, micro, piece, kept in columns
    )
    assert not [event for event in trace if event.get("cat") == "gradient"]
    kept = [e for e in trace if e["ph"] == "C" and e["name"] == "worker 2, kept"]
    own = done[done["node"] == 2]
    assert [e["args"]["bytes"] for e in kept[::2]] == own["nbytes"].tolist()  # while a pass goes on
    assert kept[-1]["args"]["bytes"] == 0
    counters = {event["name"] for event in trace if event["ph"] == "C"}
    assert "worker 0's up-link, busy" in counters
    assert not any(name.startswith("server") for name in counters)  # all-reduce has none
    led = arrows(result).merge(result.records, left_on="message", right_index=True)
    led = led.merge(done, left_on="effect", right_index=True, suffixes=("", "_to"))
    assert len(led) == result.records["kind"].isin(["activation", "error"]).sum()
    assert (led["peer"] == led["node_to"]).all()
    assert (led["end"] <= led["start_to"] + 1e-12).all()
    back = "backward-inputs" if order == "zero-bubble" else "backward"
    assert (led["kind"].map({"activation": "forward", "error": back}) == led["kind_to"]).all()
    assert not led.duplicated("effect").any()


@pytest.mark.real
def test_both_engines_have_the_same_cells_and_slices(tmp_path: Path) -> None:
    small = {"stages": 2, "micro_batches": 4, "cluster__network": NETWORK, "stop__steps": 2}
    predicted = piped("zero-bubble", **small)
    measured = lockstep.run(predicted.scenario)
    both = [predicted, measured]
    cells = [Step(result).cells.sort_values(["stage", "start"]) for result in both]
    own = [each.loc[each["own"], ["stage", "kind", "number"]].to_numpy().tolist() for each in cells]
    assert own[0] == own[1]
    titles = [ax.get_title(loc="left") for ax in plots.pipeline(both).axes]
    assert titles == ["zero-bubble, predicted", "zero-bubble, measured"]
    slices = [
        Counter(e["name"] for e in written(tmp_path, result) if e.get("cat") == "pass" and e["ph"] == "X")
        for result in both
    ]
    assert slices[0] == slices[1]


# --- figures ------------------------------------------------------------------------------------------------


def test_the_slowest_device_is_the_one_that_computes_longest() -> None:
    result = piped(cluster__stragglers=[{"worker": 2, "slowdown": 3}], cluster__network=NETWORK)
    assert result.bottleneck is not None
    assert (result.bottleneck.slowest, result.bottleneck.slowest_times) == (2, pytest.approx(3))


def test_shards_are_those_of_each_slice() -> None:
    one, split = (
        lockstep.simulate(
            scenario(
                cluster__workers=4, cluster__servers=2, cluster__network={"bandwidth": "10 Mbit/s"},
                workload={"parameters": 100_000, "batch_size": 4}, parallelism={"pipeline": stages},
            )
        )
        for stages in (1, 2)
    )  # fmt: skip
    remedies = [result.bottleneck and result.bottleneck.remedy for result in (one, split)]
    assert all(remedies)
    assert [len(result.plan.owners.ranks) for result in (one, split)] == [2, 4]
    assert 2 < remedies[1].shards <= 2 * remedies[0].shards  # type: ignore[union-attr]


@pytest.mark.parametrize("strategy", ["all-reduce", "synchronous"])
def test_windows_count_each_sample_once(strategy: str) -> None:
    result = piped(cluster__workers=8, cluster__network=NETWORK, strategy__name=strategy, cluster__servers=2)
    found = [each.value for each in scalars(result) if each.tag == "throughput"]
    assert np.mean(found) == pytest.approx(result.metrics["throughput"])


def test_the_gantt_picture_has_bars_for_passes() -> None:
    figure = plots.gantt([piped()])
    (ax,) = figure.axes
    bars = sum(len(each.get_paths()) for each in ax.collections)
    assert bars >= len(passes(piped()))
    assert {"forward", "backward"} <= {text.get_text() for text in figure.legends[0].get_texts()}
