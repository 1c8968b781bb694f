"""`lockstep validate --published`: what it fits and predicts, how it sums up, what it says to nonsense."""

import json
import re
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

import lockstep
from lockstep.studies.published import published
from lockstep.studies.published.predicting import Fitted, given_the_machine, once, study
from lockstep.studies.published.summary import ranking, statistics, summarise
from lockstep.studies.published.table import chosen, series_of
from lockstep.studies.published.tables import _section, markdown
from tests.support import ROOT
from tests.support.command_line import Lockstep
from tests.support.scenarios import scenario

PAGE = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
QUICK = ["baskerville-2025-gpt-2", "nvidia-2021-resnet-50"]


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_page_has_what_the_command_makes(name: str) -> None:
    (found,) = published(chosen([name]), jobs=1)["tables"]
    assert f"\n{_section(found)}" in PAGE, "out of date: make published"
    read, (facts,) = found["series"], [table.facts for table in chosen([name])]
    assert sum(len(series["rows"]) for series in read) == len(facts)  # no row is left out


@pytest.mark.nightly
def test_the_whole_page() -> None:
    assert markdown(published(chosen([]))) in PAGE, "out of date: make published"


def test_the_page_has_every_row_of_every_table() -> None:
    for table in chosen([]):
        _, there, section = PAGE.partition(f"\n### {table.name}\n")
        assert there, "out of date: make published"
        rows = [line for line in section.partition("\n##")[0].splitlines() if line.startswith("| ")]
        assert len(rows) - 2 == len(table.facts), f"{table.name} is out of date: make published"


def test_the_page_says_what_is_behind_every_row_that_is_far_off() -> None:
    """Of those whose mechanism is modelled: in the table of causes, and in the number above it."""
    sections = re.findall(r"^### (\S+)\n(.*?)(?=^##)", PAGE, re.M | re.S)
    off = re.compile(r"^\| .* \| ([+-][\d.,]+)% \|  \|$", re.M)
    errors = {name: [float(each.replace(",", "")) for each in off.findall(text)] for name, text in sections}
    far = {name: count for name, found in errors.items() if (count := sum(abs(each) >= 12 for each in found))}
    causes = PAGE.partition("\n## What is missed, and why\n")[2].partition("\n\nNone of these")[0]
    named = [cell for line in causes.splitlines() for cell in re.findall(r"^\| (`.*?) \|", line)]
    assert {name for cell in named for name in re.findall(r"`([\w.-]+)`", cell)} == set(far)
    assert f"{sum(far.values())} of {sum(map(len, errors.values()))}." in causes
    assert sum(int(n) for cell in named for n in re.findall(r": (\d+)", cell) or [1]) == sum(far.values())


def test_one_row_and_one_number_come_out_right() -> None:
    """A fitted row is predicted as it was measured; the others with the same time of compute."""
    fits, rows = study(chosen(["nvidia-2021-resnet-50"]), jobs=1)
    for fit in fits:
        first = rows[rows["series"] == fit.series.name].iloc[0]
        assert first["predicted"] == pytest.approx(first["measured"], rel=1e-3)
        batch = int(fit.series.facts.iloc[0]["workload.batch_size"])
        assert fit.free["cluster.compute.time.value"]["value"] == pytest.approx(
            batch / first["measured"], 1e-3
        )


def test_what_belongs_to_a_machine_is_fitted_once() -> None:
    """By its largest model, VGG; the others have a number less, and a row more that is predicted."""
    fits, rows = study(chosen(["minerva-2015"]), jobs=1)
    again, changed = once(fits, rows, jobs=1)
    largest = next(fit for fit in fits if fit.series.name == "vgg")
    for before, fit in zip(fits, again, strict=True):
        its = changed[changed["series"] == fit.series.name]
        if before is largest:
            assert fit is before
            kept = rows[rows["series"] == fit.series.name]
            pd.testing.assert_frame_equal(its.reset_index(drop=True), kept.reset_index(drop=True))
            continue
        assert [*fit.free] == ["cluster.compute.time.value"]
        assert fit.scenario.cluster.network == largest.scenario.cluster.network
        assert [*its["use"]] == ["fit", "predict", *["predict"] * (len(its) - 2)]
        first = its.iloc[0]
        assert first["predicted"] == pytest.approx(first["measured"], rel=1e-3)
    found = summarise((fits, rows), (again, changed))
    assert found["once"]["numbers"] == [6, 4]
    (table,) = found["once"]["tables"]
    assert (table["series"], table["numbers"]) == (3, [6, 4])
    assert [table[each]["rows"] for each in ("apart", "once", "besides")] == [3, 3, 2]
    assert table["apart"] == found["errors"]["modelled"]
    assert [each["series"] for each in table["by"]] == ["vgg"]
    said = markdown(found)
    assert "fitted once, 4 numbers instead of 6, the rows whose mechanism is modelled: 3 rows" in said
    assert "| minerva-2015 | 3 | 6, 4 | 3 |" in said
    assert "- `minerva-2015`, vgg: time " in said


@pytest.mark.parametrize(
    ("name", "by"),
    [
        # PyTorch's BERT has one row to fit, so only its ResNet shows the network
        ("dlperf-2020", {"resnet-50 pytorch 128"}),
        # of the largest, ResNet-152, the smaller mini-batch
        ("tensorflow-2017-one-host-replicated", {"ec2-k80 resnet-152 32"}),
    ],
)
def test_the_series_that_shows_most_of_the_network_finds_it(name: str, by: set[str]) -> None:
    (table,) = chosen([name])
    unfitted = [Fitted(series, {key: {} for key in series.free}, (), None) for series in series_of(table)]
    leaders = {
        fit.series.name
        for fit, call in zip(unfitted, given_the_machine(unfitted), strict=True)
        if call is None
    }
    assert by <= leaders


@pytest.mark.parametrize(
    ("backend", "goodput", "within", "but"),
    [("nccl", 0.98, 0.02, []), ("gloo", 0.787, 0.06, ["5 Gbit/s and 1 ms"])],
)
def test_each_backends_ring_explains_what_delays_cost(
    backend: str, goodput: float, within: float, but: list[str]
) -> None:
    """docs/published.md: with a plain ring NCCL is up to 27% too slow, Gloo up to 30% too fast."""
    (table,) = chosen(["yuan-2022-all-reduce"])
    facts = table.facts
    rows = facts[
        (facts["backend"] == backend) & ~facts["limit"].isin(["none", *but]) & (facts["mib"] == "128")
    ]
    assert len(rows) == 4 * (3 - len(but))
    for _, row in rows[rows["cluster.workers"].isin(["4", "32"])].iterrows():
        network = {key: row[f"cluster.network.{key}"] for key in ("bandwidth", "latency")}
        network["goodput"] = goodput
        run = lockstep.simulate(
            scenario(
                cluster__workers=int(row["cluster.workers"]), cluster__network=network,
                cluster__compute={"time": {"distribution": "constant", "value": "1 ns"}},
                workload={"parameters": int(row["workload.parameters"]), "batch_size": 1},
                strategy={"name": "all-reduce", "algorithm": row["strategy.algorithm"]}, stop={"steps": 1},
            )
        )  # fmt: skip
        assert run.metrics["duration_s"] == pytest.approx(float(row["step_s"]), rel=within)


def _rows(measured: list[float], predicted: list[float], measure: str = "throughput") -> pd.DataFrame:
    count = len(measured)
    return pd.DataFrame({
        "table": "t", "series": "s", "workers": range(1, count + 1), "measure": measure,
        "measured": measured, "predicted": predicted,
        "error": [p / m - 1 for p, m in zip(predicted, measured, strict=True)],
    })  # fmt: skip


def test_statistics_and_ranking() -> None:
    rows = _rows([100, 188, 195], [100, 206.8, 195])
    assert statistics(rows) == {
        "rows": 3, "median": 0.0, "p90": pytest.approx(0.08), "max": pytest.approx(0.1), "within": 1.0,
    }  # fmt: skip
    assert statistics(rows[:0])["median"] is None
    # 188 and 195 are too near to each other to be ranked; a device brings 100, 94 and 65
    assert ranking(rows) == {"tau": 1.0, "pairs": 2, "tau_each": pytest.approx(1 / 3), "pairs_each": 3}
    assert ranking(_rows([2.0, 1.0], [1.0, 2.0], "step_s"))["tau"] == -1.0
    assert ranking(rows[:0])["tau"] is None


def test_rows_of_no_known_mechanism_count_in_the_headline_and_in_no_bar() -> None:
    fits, rows = study(chosen(["nvidia-2021-resnet-50"]), jobs=1)
    found = summarise((fits, rows), (fits, rows))
    errors = found["errors"]
    assert (errors["all"]["rows"], errors["modelled"]["rows"], errors["not modelled"]["rows"]) == (6, 3, 3)
    assert found["bars"][0]["value"] == errors["modelled"]["median"]
    assert errors["modelled, not mended"] == errors["modelled"]  # that table is as it was committed first
    rows["mended"] = True
    again = summarise((fits, rows), (fits, rows))
    assert again["errors"]["modelled, not mended"]["rows"] == 0
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.fixture
def command(command: Lockstep) -> Lockstep:
    return partial(command, "validate")


@pytest.mark.slow
def test_what_it_leaves(command: Lockstep, tmp_path: Path) -> None:
    status, out, _ = command("--published", "--only", QUICK[0], "--out", str(tmp_path / "out"), "--json")
    assert status == 0
    assert json.loads(out) == json.loads((tmp_path / "out" / "published.json").read_text("utf-8"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "published.json", "published.md", "published.png",
    ]  # fmt: skip


BAD = {
    "a file too": (["quickstart", "--published"], "FILE: means nothing to --published; leave it out"),
    "the suite too": (["--published", "--suite"], "--suite: means nothing to --published"),
    "a limit": (["--published", "--limit", "3"], "--limit: means nothing to --published"),
    "no such table": (
        ["--published", "--only", "minerva"],
        "--only: no table is called 'minerva'; there are",
    ),
    "no published": (
        ["quickstart", "--only", "minerva-2015"],
        "--only: is for published tables; say --published",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_a_line(name: str, command: Lockstep, tmp_path: Path) -> None:
    arguments, says = BAD[name]
    status, out, err = command(*arguments, "--out", str(tmp_path / "out"))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ")
    assert says in err
    assert not (tmp_path / "out").exists()
