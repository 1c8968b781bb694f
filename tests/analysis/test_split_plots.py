"""Pictures of split models: lists that are one value, what the axes are, and that all of it is legible."""

from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure

import lockstep
from lockstep.analysis import plots, table
from lockstep.analysis.plots import style
from lockstep.analysis.plots.only import only
from lockstep.scenarios import ScenarioError, override
from tests.support.scenarios import scenario

DATA, PIPELINE = ["tensor", "data", "pipeline"], ["tensor", "pipeline", "data"]


def simulated(**changes: Any) -> dict[str, Any]:
    base = scenario(
        cluster__workers=8, cluster__network={"bandwidth": "1 Gbit/s"}, strategy="all-reduce",
        parallelism={"pipeline": 4, "micro_batches": 8}, stop={"steps": 2},
        workload={"parameters": 1000, "batch_size": 16, "layers": 8, "activation": "16 MB"},
    )  # fmt: skip
    for key, value in changes.items():
        base = override(base, key.replace("__", "."), value)
    return {"status": "ok"} | table.row(lockstep.simulate(base))


@pytest.fixture(scope="module")
def swept() -> pd.DataFrame:
    """2 axes × 3 activations × 2 strategies."""
    return pd.DataFrame([
        simulated(parallelism__axes=axes, workload__activation=size, strategy={"name": name})
        for axes in (DATA, PIPELINE)
        for size in ("16 MB", "64 MB", "256 MB")
        for name in ("all-reduce", "pipedream-2bw")
    ])  # fmt: skip


@pytest.fixture(scope="module")
def zipped() -> pd.DataFrame:
    """2 axes × 3 numbers of stages, each with a batch size and an activation of its own."""
    return pd.DataFrame([
        simulated(parallelism__axes=axes, parallelism__pipeline=n, parallelism__micro_batches=2 * n,
                  workload__batch_size=8 * n, workload__activation=f"{n} MB")
        for axes in (DATA, PIPELINE)
        for n in (2, 4, 8)
    ])  # fmt: skip


def titles(figure: Figure) -> list[str]:
    return [" ".join(ax.get_title().split()) for ax in figure.axes]


def test_a_list_is_one_value_and_activation_has_a_unit(swept: pd.DataFrame) -> None:
    figure = plots.throughput(swept)
    assert titles(figure) == ["axes [tensor, data, pipeline]", "axes [tensor, pipeline, data]"]
    assert figure.axes[0].get_xlabel() == "activation (MB)"


def test_the_stages_are_the_x_axis_and_not_what_follows_from_them(zipped: pd.DataFrame) -> None:
    assert plots.throughput(zipped).axes[0].get_xlabel() == "stages"
    assert plots.heat_map(zipped).axes[0].get_xlabel() == "stages"
    assert titles(plots.breakdown(zipped)) == ["2 stages", "4 stages", "8 stages"]


def test_a_cut_is_one_key_whether_it_is_a_list_or_not() -> None:
    cuts = ({"by": "flops"}, [3, 5, 7])
    rows = pd.DataFrame([
        simulated(parallelism__cut=cut, parallelism__order=order)
        for cut in cuts for order in ("1f1b", "gpipe")
    ])  # fmt: skip
    assert titles(plots.throughput(rows)) == ["cut [3, 5, 7]", "cut {by: flops}"]
    assert len(only(rows, "cut={by: flops}")) == len(only(rows, "cut=[3, 5, 7]")) == 2


def test_cells_are_as_high_as_their_numbers(swept: pd.DataFrame) -> None:
    figure = plots.heat_map(swept)
    figure.draw_without_rendering()
    for ax in figure.axes[:2]:
        high, wide = ax.get_window_extent().height, ax.get_window_extent().width
        assert high / 2 >= 1.5 * max(text.get_window_extent().height for text in ax.texts)
        assert wide / 3 >= max(text.get_window_extent().width for text in ax.texts)


@pytest.mark.parametrize("draw", [plots.breakdown, plots.heat_map, plots.throughput])
def test_titles_do_not_collide(swept: pd.DataFrame, draw: Any) -> None:
    figure = draw(swept)
    figure.draw_without_rendering()
    boxes = [ax.title.get_window_extent() for ax in figure.axes if ax.get_title()]
    assert len(boxes) > 1
    assert not any(a.overlaps(b) for number, a in enumerate(boxes) for b in boxes[:number])
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_markers_that_are_nearly_as_high_are_whole(zipped: pd.DataFrame) -> None:
    (ax,) = plots.against(zipped.assign(throughput=100.0 + zipped["parallelism.pipeline"]), "throughput").axes
    low, high = ax.get_ylim()
    assert low == 0
    assert high > 1.05 * 108


@pytest.mark.parametrize("value", ["16 MB", "16000 kB", "16000000", "1.6e7"])
def test_a_quantity_is_found_however_it_is_written(swept: pd.DataFrame, value: str) -> None:
    assert {*only(swept, f"workload.activation={value}")["workload.activation"]} == {16e6}


def test_a_list_is_found_as_yaml_has_it(swept: pd.DataFrame) -> None:
    for value in ("[tensor, data, pipeline]", '["tensor","data","pipeline"]'):
        assert len(only(swept, f"parallelism.axes={value}")) == 6
    with pytest.raises(ScenarioError, match=r"values: \[tensor, data, pipeline\], \[tensor, "):
        only(swept, "axes=[data]")


def test_what_has_to_be_fixed_is_said_at_once(swept: pd.DataFrame) -> None:
    stale = swept.assign(**{"staleness.max": 1.0, "staleness.histogram": '{"1": 1}'})
    with pytest.raises(plots.Unfit) as caught:
        plots.staleness_histogram(stale)
    said = caught.value.problem
    assert "--only 'parallelism.axes=[tensor, data, pipeline]' --only 'workload.activation=16 MB'" in said
    fixed = only(only(stale, "parallelism.axes=[tensor, data, pipeline]"), "workload.activation=16 MB")
    plots.staleness_histogram(fixed)


def test_without_strategies_the_panels_are_of_what_varies(zipped: pd.DataFrame) -> None:
    """Fixing one of two keys must not ask for the other."""
    rows = zipped.assign(**{"staleness.max": 1.0, "staleness.mean": 1.0, "staleness.histogram": '{"1": 1}'})
    figure = plots.staleness_histogram(only(rows, "axes=[tensor, data, pipeline]"))
    assert titles(figure) == [f"{n} stages: mean 1, at most 1" for n in (2, 4, 8)]


def test_a_long_list_in_a_title_breaks_before_it() -> None:
    figure, axes = style.grid(3)
    style.title(figure, axes, ["activation 256 MB, axes [tensor, data, pipeline]"] * 3)
    last = axes[0].get_title().splitlines()[-1]
    assert last.replace("\N{NO-BREAK SPACE}", " ") == "[tensor, data, pipeline]"


def test_a_way_is_named_by_what_it_has() -> None:
    """Servers have no algorithm."""
    rows = [
        {
            "cluster.workers": n,
            "workload.parameters": p,
            "strategy.name": name,
            "strategy.algorithm": algorithm,
        }
        | {"throughput": 100 if algorithm else 200, "status": "ok", "seed": 0}
        for n in (2, 4)
        for p in (10**6, 10**7)
        for name, algorithm in (("model-averaging", None), ("local-sgd", "ring"))
    ]
    texts = [text.get_text() for text in plots.decision(pd.DataFrame(rows)).axes[0].texts]
    assert texts == ["model-averaging\n+100.0%"] * 4


def test_a_decision_is_hatched_where_seeds_may_have_chosen() -> None:
    """Two seeds are ± 12.7·s/√2: at 10 Gbit/s they overlap, at 1 Gbit/s not; one seed has no interval."""
    runs = {(1e9, "a"): (100, 101), (1e9, "b"): (200, 201), (1e10, "a"): (100, 120), (1e10, "b"): (110, 130)}
    rows = [
        {"cluster.network.bandwidth": b, "cluster.workers": n, "strategy.name": name, "throughput": value}
        | {"status": "ok", "seed": seed}
        for (b, name), values in runs.items()
        for n in (2, 4)
        for seed, value in enumerate(values)
    ]
    table = pd.DataFrame(rows)
    figure = plots.decision(table)
    hatched = [patch.get_xy() for patch in figure.axes[0].patches]
    assert hatched == [(0.5, -0.5), (0.5, 0.5)]
    assert "Hatched" in figure.get_supxlabel()
    single = plots.decision(table[table["seed"] == 0])
    assert not single.axes[0].patches
    assert "Hatched" not in single.get_supxlabel()
    assert titles(single) == ["Best by throughput: b everywhere"]


def test_a_way_that_did_not_reach_the_target_with_every_seed_is_not_best() -> None:
    rows = [
        {"cluster.network.bandwidth": b, "cluster.workers": n, "strategy.name": name, "status": "ok"}
        | {"seed": seed, "time_to_target_s": seconds}
        for b in (1e9, 1e10)
        for n in (2, 4)
        for name, values in {"a": (1.0, None), "b": (5.0, 6.0), "c": (9.0, 8.0)}.items()
        for seed, seconds in enumerate(values)
    ]
    texts = [text.get_text() for text in plots.decision(pd.DataFrame(rows)).axes[0].texts]
    assert texts == ["b\n+54.5%"] * 4


def test_a_decision_names_the_best_of_what_else_varies_in_each_cell() -> None:
    rows = [
        {
            "cluster.network.bandwidth": b,
            "workload.parameters": p,
            "parallelism.pipeline": s,
            "parallelism.tensor": t,
        }
        | {"throughput": 100 * t if b > 1e9 else 100 * s, "status": "ok", "seed": 0}
        for b in (1e9, 1e10)
        for p in (10**6, 10**7)
        for s, t in ((1, 4), (4, 1), (2, 2))
    ]
    table = pd.DataFrame(rows)
    figure = plots.decision(table)
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["4 stages\n+100.0%", "1 stage\n+100.0%"] * 2  # the parts follow
    assert figure.axes[0].get_ylabel() == "parameters"
    failed = table.assign(status=["ok"] * 9 + ["failed"] * 3)
    assert "none fits" in [text.get_text() for text in plots.decision(failed).axes[0].texts]
    with pytest.raises(plots.Unfit, match="something to decide"):
        plots.decision(table[table["parallelism.pipeline"] == 1])
