"""What pictures say above them, how wide they are, and what is drawn where lines would hide each other."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

import lockstep
from lockstep.analysis import plots
from lockstep.analysis.plots import activities, style
from lockstep.analysis.plots.comparison import predicted_and_measured
from lockstep.analysis.plots.findings import Value, leads, worst
from lockstep.strategies import STRATEGIES
from tests.support import ROOT
from tests.support.scenarios import scenario

SIX = ("synchronous", "asynchronous", "downpour", "ssp", "agn", "all-reduce")


def rows(**metric: Any) -> pd.DataFrame:
    """A row for each strategy and number of workers, with metrics given as functions of the two."""
    names = metric.pop("names", SIX[:2])
    common = {"status": "ok", "seed": 0, "engine": "simulator"}
    return pd.DataFrame([
        {"strategy.name": name, "cluster.workers": n, **common}
        | {key: of(name, n) for key, of in metric.items()}
        for name in names for n in (1, 2, 4, 8, 16)
    ])  # fmt: skip


def title(figure: Figure) -> str:
    heads = [ax.get_title() for ax in figure.axes]
    if figure.legends and figure.legends[0].get_title().get_text():
        heads = [figure.legends[0].get_title().get_text(), *heads]
    return " ".join(heads[0].split())


def told(*values: tuple[str, float, float]) -> list[Value]:
    """Names, means and halves of their intervals over three seeds."""
    return [Value(name, mean, mean - half, mean + half, 3) for name, mean, half in values]


def test_who_leads_and_whether_seeds_can_tell() -> None:
    assert (
        leads(told(("a", 100, 1), ("b", 80, 1)), "throughput", "8 workers") == "a leads by 25.0% at 8 workers"
    )
    assert leads(told(("a", 100, 1), ("b", 80, 1)), "loss") == "b leads by 25.0%"
    assert leads(told(("a", 100, 9), ("b", 95, 9)), "throughput") == "a and b lead, seeds cannot tell which"
    assert (
        leads(told(("a", 300, 1), ("b", 300, 0), ("c", 100, 1)), "speedup")
        == "a and b lead, seeds cannot tell which"
    )
    three = told(("a", 100, 9), ("b", 95, 9), ("c", 99, 9))
    assert leads(three, "throughput", "the end") == "seeds cannot tell who leads at the end"
    exact = [Value(name, mean, mean, mean, 1) for name, mean in (("a", 300.0), ("b", 300.0), ("c", 100.0))]
    assert leads(exact, "speedup") == "a and b lead by a factor of 3"
    assert leads(exact[:2], "speedup") == "all are alike"
    assert leads(exact, "staleness.mean") == leads(exact[:1], "speedup") == ""
    assert worst([104, 95, 3], [100, 100, 0]) == "within 5.0%"
    assert worst([1], [0]) == ""


def test_where_all_is_ideal_the_efficiency_is_drawn() -> None:
    near = rows(
        speedup=lambda name, n: 0.93 * n, efficiency=lambda name, n: 0.93, throughput=lambda name, n: n
    )
    figure = plots.speedup(near)
    (ax,) = figure.axes
    assert title(figure) == "Efficiency: all within 7.0% of the ideal"
    assert ax.get_ylim()[0] > 0.8
    assert ax.get_yscale() == "linear"
    far = near.assign(efficiency=0.5, speedup=near["speedup"] / 2)
    assert plots.speedup(far).axes[0].get_ylabel() == "speedup (× one worker)"


def test_more_than_six_have_a_panel_each() -> None:
    seven = (*SIX, "aeasgd")
    many = rows(
        names=seven, throughput=lambda name, n: n * (1.0 + seven.index(name)), speedup=lambda name, n: n
    )
    assert len(plots.throughput(many[many["strategy.name"] != "aeasgd"]).axes) == 1
    figure = plots.throughput(many)
    assert {ax.get_title() for ax in figure.axes} == {*seven}
    assert title(figure) == "Throughput: aeasgd leads by 16.7% at 16 workers"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["all others"]
    grey = [line for line in figure.axes[0].get_lines() if line.get_color() == "#CCCCCC"]
    assert len(grey) == 6


def test_staleness_that_grows_with_the_workers_is_a_line_of_its_reference() -> None:
    columns = ("staleness.mean", "staleness.p50", "staleness.p99", "staleness.max")
    stale = rows(**{name: lambda name, n: float(n - 1) * (name != "synchronous") for name in columns})
    figure = plots.staleness_quantiles(stale)
    ax = figure.axes[0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "symlog")
    assert "workers − 1" in [text.get_text() for text in figure.legends[0].get_texts()]
    assert title(figure) == "Staleness: the median of asynchronous is workers − 1"
    reference = ax.get_lines()[-1]
    assert np.allclose(reference.get_ydata(), np.asarray(reference.get_xdata()) - 1)


def test_the_target_is_named() -> None:
    reached = rows(time_to_target_s=lambda name, n: 9.0 / n if name == "asynchronous" else None)
    one = reached[reached["cluster.workers"] == 4]
    figure = plots.time_to_target(one.assign(**{"stop.target_accuracy": 0.85}))
    assert title(figure) == "Time to 85% accuracy: only asynchronous reaches it"
    assert figure.axes[0].get_xlabel() == "time to 85% accuracy (s)"
    some = pd.concat([one, one.assign(seed=1)], ignore_index=True)
    some.loc[some["strategy.name"].eq("synchronous") & some["seed"].eq(1), "time_to_target_s"] = 1.0
    finding = title(plots.time_to_target(some.assign(**{"stop.target_accuracy": 0.85})))
    assert "synchronous lead" not in finding  # one of its seeds did not reach it
    loss = one.assign(**{"stop.target.metric": "loss", "stop.target.at_most": 0.3})
    assert title(plots.time_to_target(loss)).startswith("Time to loss ≤ 0.3: ")


def test_no_activity_has_a_strategys_colour() -> None:
    mine = [to_rgb(colour) for name, colour in vars(activities).items() if name.isupper()]
    theirs = {to_rgb(style.style(name)["color"]) for name in STRATEGIES}
    assert all(np.abs(np.subtract(one, other)).max() > 0.05 for one in mine for other in theirs)


@pytest.fixture(scope="module")
def pair() -> list[lockstep.Result]:
    """Two strategies that learn a little."""
    return [
        lockstep.simulate(
            scenario(
                cluster__network={"bandwidth": "1 Gbit/s"},
                workload={"problem": "quadratic"},
                strategy={"name": name},
                stop={"steps": 6},
            )
        )
        for name in SIX[:2]
    ]


def test_errors_stand_at_the_bars(pair: list[lockstep.Result], tmp_path: Path, monkeypatch: Any) -> None:
    figures: list[Figure] = []
    monkeypatch.setattr(style, "save", lambda figure, *_: figures.append(figure) or [])
    predicted_and_measured([(pair[0], pair[0]), (pair[1], pair[0])], tmp_path / "picture")
    left = figures[0].axes[0]
    a, b = (result.metrics["throughput"] for result in pair)
    said = [text.get_text() for text in left.texts]
    assert any(text.endswith(f"({100 * (b / a - 1):+.1f}%)") for text in said)
    assert left.get_title() == f"Throughput within {100 * abs(b / a - 1):.1f}%"
    check(figures[0])


def check(figure: Figure) -> None:
    """As wide as a column or a page of a paper, and no text below 6 points."""
    assert round(25.4 * figure.get_figwidth(), 6) in (85, 178)
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    assert min(text.get_fontsize() for text in texts) >= 6


def test_all_pictures_are_as_wide_as_a_column_or_a_page(pair: list[lockstep.Result]) -> None:
    measured = [*("throughput", "speedup", "efficiency", "hosts")]
    metrics = {key: lambda name, n: 3.0 * n + len(name) for key in measured}
    swept = rows(names=SIX, **metrics, **{"breakdown.compute": lambda name, n: 0.5})
    for bandwidth in (1e8, 1e9, 1e10):
        figure = plots.heat_map(swept.assign(**{"cluster.network.bandwidth": bandwidth}))
        check(figure)
    wide = pd.concat([swept.assign(**{"cluster.network.bandwidth": float(b)}) for b in (1e8, 1e9)])
    check(plots.decision(wide.reset_index(drop=True), x="cluster.workers", by="bandwidth"))
    for draw in (plots.throughput, plots.speedup, plots.pareto, plots.heat_map):
        check(draw(swept))
    for draw in (plots.learning, plots.link_utilisation, plots.gantt):
        check(draw(pair))
        check(draw(pair[:1]))
    check(plots.critical(pair))


def test_so_are_those_of_the_pages() -> None:
    pictures = [each for each in (ROOT / "docs").rglob("*.png") if each.name != "serve.png"]  # of a browser
    widths = {each.name: plt.imread(each).shape[1] for each in pictures}
    assert {name: width for name, width in widths.items() if width not in (669, 1401)} == {}
    assert len(widths) > 20
