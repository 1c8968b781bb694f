"""Pictures of runs: what is in them, whatever is swept, and what the command says."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import lockstep
from lockstep.analysis import plots, runs, saved, table
from lockstep.analysis.plots import only, series, style
from lockstep.scenarios import ScenarioError
from lockstep.strategies import STRATEGIES
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import scenario

COMPUTE = {"time": {"distribution": "exponential", "mean": "10 ms"}}
NETWORK = {"bandwidth": "1 Gbit/s", "latency": "50 us"}


def simulated(**changes: Any) -> lockstep.Result:
    return lockstep.simulate(
        scenario(cluster__compute=COMPUTE, cluster__network=NETWORK, workload__parameters=100_000, **changes)
    )


def tabled(results: list[lockstep.Result]) -> pd.DataFrame:
    rows = [{"point": 0, "run": f"{i}", "status": "ok"} | table.row(r) for i, r in enumerate(results)]
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def swept() -> pd.DataFrame:
    """3 strategies × 1, 2, 4 workers × 2 seeds."""
    return tabled([
        simulated(strategy={"name": name}, cluster__workers=workers, seed=seed)
        for name in ("ssp", "asynchronous", "synchronous")
        for workers in (1, 2, 4)
        for seed in (1, 2)
    ])  # fmt: skip


@pytest.fixture(scope="module")
def learned() -> list[lockstep.Result]:
    return [
        lockstep.simulate(
            scenario(
                workload={"problem": "quadratic"}, strategy={"name": name}, seed=seed,
                cluster__compute=COMPUTE, cluster__network=NETWORK, stop={"steps": 12},
            )
        )
        for name in ("synchronous", "downpour")
        for seed in (1, 2)
    ]  # fmt: skip


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()] if figure.legends else []


def small_print(figure: Figure) -> str:
    return figure.get_supxlabel()


@pytest.mark.slow
def test_throughput_and_speedup(swept: pd.DataFrame) -> None:
    figure = plots.throughput(swept)
    (ax,) = figure.axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("number of workers", "throughput (samples/s)")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "4"]
    assert sorted(legend(figure)) == ["asynchronous", "ideal", "ssp", "synchronous"]
    assert "95% intervals" in small_print(figure)
    half = ax.containers[0].lines[2][0].get_segments()
    means = table.intervals(swept[swept["strategy.name"] == "synchronous"], ["cluster.workers"], "throughput")
    assert [tuple(segment[:, 1]) for segment in half] == [
        pytest.approx((low, high)) for low, high in means[["low", "high"]].to_numpy()
    ]
    speedup = plots.speedup(swept).axes[0]
    assert speedup.get_ylabel() == "speedup (× one worker)"
    ideal = speedup.get_lines()[-1]
    assert list(ideal.get_ydata()) == list(ideal.get_xdata())


@pytest.mark.slow
def test_a_strategy_looks_the_same_whatever_else_is_drawn(swept: pd.DataFrame) -> None:
    for chosen in (swept, swept[swept["strategy.name"] == "ssp"], swept[::-1]):
        ax = plots.throughput(chosen).axes[0]
        colours = [to_rgb(container.lines[0].get_color()) for container in ax.containers]
        assert to_rgb(style.style("ssp")["color"]) in colours
    assert [each.name for each in series.lines(swept[::-1], "strategy.name")] == [
        "synchronous", "asynchronous", "ssp",
    ]  # fmt: skip
    assert style.style("somebody's own") == style.style("somebody's own")


def test_looks_follow_from_names_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that is taken is passed over, whoever comes."""
    looks = {tuple(style.style(name).items()) for name in STRATEGIES}
    assert len(looks) == len(STRATEGIES)
    usual = ("synchronous", "asynchronous", "downpour", "all-reduce", "ssp", "agn", "aeasgd")
    assert len({style.style(name)["color"] for name in usual}) == len(usual)
    many = {f"strategy {number}": None for number in range(336)}
    monkeypatch.setattr(style, "STRATEGIES", many)
    style._numbers.cache_clear()
    assert len({tuple(style.style(name).items()) for name in many}) == len(many)
    style._numbers.cache_clear()


def test_panels_have_the_same_look_for_the_same_value(swept: pd.DataFrame) -> None:
    holes = swept.drop(swept[(swept["strategy.name"] == "ssp") & (swept["cluster.workers"] == 1)].index)
    figure = plots.against(
        holes.assign(**{"cluster.servers.count": holes["seed"]}), "throughput", by="workers"
    )
    assert [ax.get_title() for ax in figure.axes] == ["synchronous", "asynchronous", "ssp"]
    colours = [[container.lines[0].get_color() for container in ax.containers] for ax in figure.axes]
    assert colours[0] == colours[1] == colours[2]
    assert legend(figure) == ["1 worker", "2 workers", "4 workers"]


def test_what_was_not_reached_is_said(swept: pd.DataFrame) -> None:
    some = swept.assign(time_to_target_s=swept["duration_s"].where(swept["strategy.name"] != "ssp"))
    some.loc[some["seed"].eq(2) & some["cluster.workers"].eq(4), "time_to_target_s"] = None
    said = small_print(plots.time_to_target(some))
    assert "No point: no seed has a value" in said
    assert "Hollow: not all seeds" in said
    bars = plots.time_to_target(some[some["cluster.workers"] == 2])
    assert [text.get_text() for text in bars.axes[0].texts] == ["not reached"]
    assert "never" in [text.get_text() for text in plots.heat_map(some).axes[0].texts]
    with pytest.raises(plots.Unfit, match="no run has reached a target"):
        plots.time_to_target(swept)


def test_failed_runs_are_counted_and_have_cells(swept: pd.DataFrame) -> None:
    failed = swept.copy()
    failed.loc[(swept["strategy.name"] == "ssp") & (swept["cluster.workers"] == 4), "status"] = "failed"
    assert "2 of 18 runs failed" in small_print(plots.throughput(failed))
    assert "failed" in [text.get_text() for text in plots.heat_map(failed).axes[0].texts]
    with pytest.raises(plots.Unfit, match="no run has ended well"):
        plots.throughput(swept.assign(status="failed"))


def test_a_heat_map_has_no_disturbed_run_in_a_mean(swept: pd.DataFrame) -> None:
    """Where its point has others; with what failed too, and where no table says what failed."""
    keys = swept["strategy.name"] + swept["cluster.workers"].astype(str)
    rows = swept.assign(point=pd.factorize(keys)[0]).reset_index(drop=True)
    noisy = rows.index == 0
    loud = rows.assign(disturbed=noisy, throughput=rows["throughput"].where(~noisy, 9e9))

    def cells(given: pd.DataFrame) -> list[str]:
        (ax, *_) = plots.heat_map(given, y="throughput").axes
        return [text.get_text() for text in ax.texts]

    assert cells(loud) == cells(loud.drop(columns="status", errors="ignore")) == cells(rows[~noisy])
    status = ["ok"] * (len(rows) - 1) + ["failed"]
    assert cells(loud.assign(status=status)) == cells(rows.assign(status=status)[~noisy])


def test_heat_map(swept: pd.DataFrame) -> None:
    figure = plots.heat_map(swept, y="efficiency")
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("workers", "strategy")
    values = swept.groupby(["strategy.name", "cluster.workers"])["efficiency"].mean()
    low, high = style.plain(values.min()), style.plain(values.max())
    assert " ".join(ax.get_title().split()) == f"Efficiency (speedup ÷ workers): {low} to {high}"
    one = swept[(swept["strategy.name"] == "synchronous") & (swept["cluster.workers"] == 1)]
    assert ax.texts[0].get_text() == style.plain(one["efficiency"].mean())
    with pytest.raises(plots.Unfit, match="two keys"):
        plots.heat_map(swept[swept["strategy.name"] == "ssp"])


def test_staleness(swept: pd.DataFrame) -> None:
    figure = plots.staleness_histogram(swept)
    titles = [ax.get_title().split(": mean ") for ax in figure.axes]
    assert [name for name, _ in titles] == ["asynchronous", "ssp"]
    highest = swept.loc[swept["strategy.name"].eq("ssp"), "staleness.max"].max()
    assert titles[1][1].endswith(f", at most {highest:.0f}")
    assert figure.axes[0].get_xlabel() == "staleness (versions)"
    heights = [patch.get_height() for patch in figure.axes[0].patches]
    assert sum(heights) == pytest.approx(100)
    assert "With 4 workers" in small_print(figure)
    assert "Never stale: synchronous." in small_print(figure)
    quantiles = plots.staleness_quantiles(swept)
    assert [ax.get_title() for ax in quantiles.axes] == ["Median", "99th percentile", "Maximum"]
    with pytest.raises(plots.Unfit, match=r"such as cluster\.workers"):
        plots.staleness_quantiles(swept[swept["cluster.workers"] == 4])


def test_breakdown(swept: pd.DataFrame) -> None:
    figure = plots.breakdown(swept[swept["cluster.workers"] == 4])
    (ax,) = figure.axes
    assert ax.get_xlabel() == "share of the mean worker's time (%)"
    assert {*legend(figure)} == {"computing", "sending", "network", "waiting for others"}
    bars = {round(patch.get_y(), 6) for patch in ax.patches}
    assert sum(patch.get_width() for patch in ax.patches) == pytest.approx(100 * len(bars))
    one = plots.breakdown(swept[swept["strategy.name"].eq("ssp") & swept["cluster.workers"].eq(4)])
    assert [tick.get_text() for tick in one.axes[0].get_yticklabels()] == [f"worker {n}" for n in range(4)]
    assert "sending" in legend(one)


@pytest.mark.slow
def test_stragglers_relative_to_none() -> None:
    slow = tabled([
        simulated(strategy={"name": name}, cluster__stragglers=stragglers, seed=seed)
        for name in ("synchronous", "asynchronous")
        for stragglers in ([], [{"worker": 0, "slowdown": 2}], [{"worker": 0, "slowdown": 5}])
        for seed in (1, 2)
    ])  # fmt: skip
    (ax,) = plots.stragglers(slow).axes
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("slowdown", "throughput relative\nto slowdown 1")
    for container in ax.containers:
        assert list(container.lines[0].get_xdata()) == [1, 2, 5]
        assert container.lines[0].get_ydata()[0] == 1
    assert plots.throughput(slow).axes[0].get_xlabel() == "slowdown"
    with pytest.raises(plots.Unfit, match=r"cluster\.stragglers"):
        plots.stragglers(slow[slow["cluster.stragglers"] == "[]"])


def test_pareto(swept: pd.DataFrame) -> None:
    figure = plots.pareto(swept)
    (ax,) = figure.axes
    assert ax.get_xlabel().startswith("machine time: time × hosts (host-")
    assert ax.get_ylabel() == "time for a million samples (min)"
    price, time = (list(map(float, data)) for data in ax.get_lines()[-1].get_data())
    assert price == sorted(price)
    assert time == sorted(time, reverse=True)
    assert (swept["hosts"] == swept["cluster.workers"] + 1).all()
    ring = simulated(strategy={"name": "all-reduce"})
    assert table.row(ring)["hosts"] == 4


def test_learning_curves(learned: list[lockstep.Result]) -> None:
    for against, label in (("time", "time since the first mini-batch (s)"), ("updates", "updates (number)")):
        figure = plots.learning(learned, against)  # type: ignore[arg-type]
        (ax,) = figure.axes
        assert (ax.get_xlabel(), ax.get_ylabel()) == (label, "held-out loss")
        assert legend(figure) == ["synchronous", "downpour"]
        thin = [line for line in ax.get_lines() if line.get_linewidth() < 0.5]
        assert len(thin) == 4  # two seeds each
        assert small_print(figure) == "Thin: each seed; thick: their mean."
    with pytest.raises(plots.Unfit, match="nothing was learned"):
        plots.learning([simulated()])


def test_utilisation() -> None:
    figure = plots.link_utilisation([simulated(), simulated(seed=9)])
    ax = figure.axes[0]
    title = " ".join(ax.get_title().split())
    assert title.startswith("asynchronous, 4 workers, seed 3: server 0's down-link is busiest, ")
    assert ax.get_xlabel() == "time (s)"
    assert any(tick.get_text().startswith("server 0's down-link (") for tick in ax.get_yticklabels())
    cells = ax.collections[0].get_array()
    assert cells is not None
    assert 0 < cells.max() <= 100
    assert figure.axes[1].get_ylabel() == "busy (%)"
    assert len(figure.axes) == 2  # the second seed is not shown


def test_predicted_against_measured(swept: pd.DataFrame) -> None:
    measured = swept.assign(engine="executor", throughput=1.1 * swept["throughput"])
    figure = plots.predicted_against_measured(pd.concat([swept, measured]))
    ax = figure.axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("measured (samples/s)", "predicted (samples/s)")
    assert legend(figure)[-2:] == ["within 5%", "within 10%"]
    x, y = ax.get_lines()[1].get_data()
    assert list(x / y) == pytest.approx([1.1] * len(x))
    with pytest.raises(plots.Unfit, match="both engines"):
        plots.predicted_against_measured(swept)


def test_only_runs_that_differ_in_the_seed_alone_are_averaged(swept: pd.DataFrame) -> None:
    faster = swept.assign(**{"cluster.network.bandwidth": 1e9})
    figure = plots.throughput(pd.concat([swept, faster], ignore_index=True))
    assert [ax.get_title() for ax in figure.axes] == ["bandwidth 1 Gbit/s", "bandwidth 8 Gbit/s"]
    many = [swept.assign(**{"cluster.network.bandwidth": float(n)}) for n in range(1, 9)]
    with pytest.raises(plots.Unfit, match=r"8 pictures .*cluster\.network\.bandwidth"):
        plots.throughput(pd.concat(many, ignore_index=True))


def test_strategies_with_workers_of_their_own_get_bars(swept: pd.DataFrame) -> None:
    one, other = ((swept["strategy.name"] == name) for name in ("ssp", "synchronous"))
    rows = swept[(one & swept["cluster.workers"].eq(2)) | (other & swept["cluster.workers"].eq(4))]
    assert plots.throughput(rows).axes[0].get_xlabel() == "throughput (samples/s)"
    with pytest.raises(plots.Unfit, match="nothing varies"):
        plots.throughput(rows[rows["strategy.name"] == "ssp"])


def test_small_print_is_as_narrow_as_the_picture() -> None:
    figure = style.figure(style.SINGLE, 2)
    style.note(figure, "word " * 40)
    assert max(map(len, small_print(figure).splitlines())) <= 70


@pytest.mark.slow
def test_files_are_the_same_each_time(swept: pd.DataFrame, tmp_path: Path) -> None:
    first, second = (plots.save(plots.throughput(swept), tmp_path / name / "a.b") for name in "pq")
    assert [file.name for file in first] == ["a.b.png", "a.b.svg", "a.b.pdf"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert b"date" not in first[1].read_bytes()
    assert b"CreationDate" not in first[2].read_bytes()


def test_results_come_back_as_they_were_saved(learned: list[lockstep.Result], tmp_path: Path) -> None:
    for result in (learned[0], simulated()):
        result.save(tmp_path / "run")
        again = saved.load(tmp_path / "run")
        assert again.metrics == result.metrics
        assert again.plan.owners == result.plan.owners
        assert again.gradient_s == pytest.approx(result.gradient_s)
        pd.testing.assert_frame_equal(again.curve, result.curve)
    with pytest.raises(ScenarioError, match=r"there is no scenario\.yaml"):
        saved.load(tmp_path)


@pytest.fixture(scope="module")
def folder(swept: pd.DataFrame, learned: list[lockstep.Result], tmp_path_factory: Any) -> Path:
    """As a sweep leaves it, of which the records of some runs were kept."""
    out: Path = tmp_path_factory.mktemp("sweep")
    swept.to_parquet(out / "results.parquet")
    for number, result in enumerate(learned):
        result.save(out / "runs" / str(number))
    return out


@pytest.mark.slow
def test_the_command_draws_what_it_can(command: Lockstep, folder: Path, tmp_path: Path) -> None:
    ended = command("plot", folder, "--out", tmp_path / "p", "--format", "svg")
    where, names = fine(ended).split(":\n")
    assert where == f"Written to {tmp_path / 'p'}, each as svg"
    drawn = re.findall(r"[\w-]+", names)
    assert drawn == [
        "throughput", "speedup", "loss-time", "loss-updates", "staleness", "staleness-quantiles", "breakdown",
        "utilisation", "gantt", "critical-path", "heat-map", "pareto",
    ]  # fmt: skip
    assert sorted(file.name for file in (tmp_path / "p").iterdir()) == sorted(f"{name}.svg" for name in drawn)
    left_out = [line.split(" left out: ")[0] for line in ended.err.splitlines()]
    assert {*left_out} | {*drawn} == {*plots.KINDS} - {"metric"}


@pytest.mark.slow
def test_the_command_with_options(command: Lockstep, folder: Path, tmp_path: Path) -> None:
    fine(
        command("plot", folder / "results.parquet", "--y", "efficiency", "--out", tmp_path, "--format", "png")
    )
    assert [file.name for file in tmp_path.iterdir()] == ["efficiency.png"]
    chosen = runs.read([folder]).only(lambda rows: only.only(rows, "strategy.name=ssp"))
    assert {*chosen.table["strategy.name"]} == {"ssp"}
    assert not chosen.results


def test_folders_of_runs_and_of_validate(learned: list[lockstep.Result], tmp_path: Path) -> None:
    for side, result in (("predicted", learned[0]), ("measured", learned[1])):
        result.save(tmp_path / "synchronous" / side)
    assert len(runs.read([tmp_path]).results) == 2
    one = runs.read([tmp_path / "synchronous" / "measured"])
    assert one.table["seed"].tolist() == [2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "pie"], r"--kind: no kind 'pie' \(kinds: throughput, speedup, "),
        (["--kind", "throughput", "--x", "wrkers"], r"--x: no key 'wrkers'.*cluster\.workers"),
        (["--y", "thoughput"], r"--y: no metric 'thoughput'; did you mean 'throughput'\?"),
        (["--only", "workers=3"], r"--only: no run has cluster\.workers '3' \(values: 1, 2, 4\)"),
        (["--only", "workers"], "--only: 'workers' is not KEY=VALUE"),
        (["--format", "gif"], r"--format: no format 'gif' \(formats: png, svg, pdf\)"),
        (["--kind", "stragglers"], r"stragglers: no number of cluster\.stragglers varies"),
    ],
)
def test_what_cannot_be_is_said(
    command: Lockstep, folder: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    ended = command("plot", folder, "--out", tmp_path / "none", *arguments)
    assert ended.status == 2
    assert ended.err.count("\n") == 1
    assert re.search(message, ended.err), ended.err
    assert not (tmp_path / "none").exists()


def test_narrow_pictures_have_their_panels_below_one_another(swept: pd.DataFrame) -> None:
    with style.narrow():
        figure = plots.staleness_quantiles(swept)
    assert figure.get_figwidth() == style.SINGLE
    assert [ax.get_subplotspec().get_gridspec().get_geometry() for ax in figure.axes] == [(3, 1)] * 3  # type: ignore[union-attr]
    assert all(ax.get_xlabel() for ax in figure.axes)
    assert plots.staleness_quantiles(swept).get_figwidth() == style.DOUBLE


def test_numbers_at_points_of_the_front_hide_nothing(swept: pd.DataFrame) -> None:
    figure = plots.pareto(swept)
    (ax,) = figure.axes
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert {text.get_text() for text in ax.texts} == {"1", "2", "4"}
    assert len(boxes) < 9  # asynchronous and ssp coincide
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize(
    ("back_after", "to"),
    [("400 ms", 1.05 + 0.4 + 0.1), (None, 1.05 + 0.2 + 0.1)],  # back; or until it is noticed
)
def test_the_gantt_picture_shows_the_first_failure(back_after: str | None, to: float) -> None:
    """With an iteration before and one after it: the gap is in the picture."""
    crash = {"worker": 1, "at": "1050 ms", "crash": True, "back_after": back_after}
    one = scenario(
        cluster__faults=[crash],
        cluster__detect="200 ms",
        cluster__compute={"time": {"distribution": "constant", "value": "100 ms"}},
        strategy="asynchronous",
        recovery={"on_failure": "continue"},
        stop={"steps": 30},
    )
    figure = plots.gantt([lockstep.simulate(one)])
    (ax,) = figure.axes
    assert "0.95 s after the first mini-batch" in ax.get_xlabel()
    assert ax.get_xlim()[1] == pytest.approx(to - 0.95)
    assert "down" in legend(figure)


def test_what_differs_is_in_the_titles_of_runs_that_are_else_alike() -> None:
    pair = [
        simulated(strategy={"name": "downpour", "communication_window": n}, stop={"steps": 4}) for n in (1, 2)
    ]
    titles = [ax.get_title(loc="left") for ax in plots.gantt(pair).axes]
    for n, title in zip((1, 2), titles, strict=True):
        said = (
            rf"predicted: downpour, 4 workers, communication window {n} – workers compute \d+% of this time"
        )
        assert re.fullmatch(said, title), title
