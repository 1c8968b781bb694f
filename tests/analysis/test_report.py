"""`lockstep report`: what it says, that its commands are right, and how it behaves in a browser."""

import base64
import re
import shlex
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep import scenarios
from lockstep.analysis import report, table
from lockstep.analysis.report import pictures
from lockstep.analysis.report.answer import answer
from lockstep.analysis.report.points import points
from lockstep.analysis.report.reproduce import settings
from lockstep.analysis.words import within
from tests.support.browser import headless
from tests.support.command_line import Lockstep, fine
from tests.support.commands import until

BASE = """\
name: "<script>alert(1)</script> & co"
cluster:
  workers: 2
  network: {bandwidth: 100 Mbit/s, latency: 50 us}
  compute: {time: {distribution: exponential, mean: 20 ms}}
workload: {parameters: 20000, batch_size: 8}
strategy: asynchronous
stop: {steps: 6}
seed: 5
sweep:
  strategy.name: [synchronous, asynchronous]
  cluster.workers: [2, 3, 10]
  seed: [1, 2]
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep, one run of which has failed."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "scenario.yaml").write_text(BASE)
    rows: list[dict[str, Any]] = []
    for strategy in ("synchronous", "asynchronous"):
        for workers in (2, 3, 10):
            for seed in (1, 2):
                sets = [f"strategy.name={strategy}", f"cluster.workers={workers}", f"seed={seed}"]
                result = lockstep.simulate(lockstep.load(folder / "scenario.yaml", sets))
                head = {"point": len(rows) // 2, "run": f"{len(rows):x}", "status": "ok", "error": None}
                rows.append(head | table.row(result))
    failed = {key: value for key, value in rows[-1].items() if key in table.keys(result.scenario)}
    rows[-1] = {**head, "status": "failed", "error": "/home/me/x.py: <b>no memory</b>", **failed}
    pd.DataFrame(rows).to_parquet(folder / "results.parquet", index=False)
    return folder


@pytest.fixture(scope="module", autouse=True)
def _few_pictures() -> Iterator[None]:
    """What each picture shows is another test's; a report with all of them takes seconds."""
    few = {kind: pictures._KINDS[kind] for kind in ("throughput", "breakdown")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "_KINDS", few)
        yield


@pytest.fixture(scope="module")
def page(swept: Path) -> str:
    return report.page(report.gather(swept), {"lockstep": "1.2.3"})


@pytest.mark.slow
def test_the_answer_names_the_best_point_and_what_limits_it(page: str, swept: Path) -> None:
    said = unescape(re.search(r'class="answer[^"]*">(.*?)</p>', page, re.DOTALL)[1])  # type: ignore[index]
    runs = pd.read_parquet(swept / "results.parquet")
    ended = runs[runs["status"] == "ok"].groupby(["strategy.name", "cluster.workers"])["throughput"]
    complete = ended.mean()[ended.count() == 2]
    strategy, workers = complete.idxmax()
    assert said.startswith(f"Predicted: {strategy} has the highest throughput: ")
    assert f"with {workers} workers" in said
    assert "bound by" in said


@pytest.mark.slow
def test_a_tie_is_not_called_a_difference(swept: Path) -> None:
    gathered = report.gather(swept)
    gathered.runs.loc[gathered.runs["seed"] == 1, "throughput"] = 1000.0
    gathered.runs.loc[gathered.runs["seed"] == 2, "throughput"] = 1100.0
    found = points(gathered.runs, ["strategy.name", "cluster.workers"])
    assert "no clear difference from" in answer(found, gathered.runs).sentence


@pytest.mark.slow
def test_hostile_names_are_escaped(page: str) -> None:
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in page
    assert "<b>no memory" not in page


def test_it_names_no_folders(page: str, swept: Path) -> None:
    assert str(swept) not in page
    assert "/home/me" not in page
    assert "…/x.py" in page


def test_it_asks_for_nothing_else(page: str) -> None:
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "@import" not in page
    assert page.count("data:image/svg+xml") >= 2


@pytest.mark.slow
def test_the_same_folder_gives_the_same_bytes(page: str, swept: Path) -> None:
    assert report.page(report.gather(swept), {"lockstep": "1.2.3"}) == page


@pytest.mark.slow
def test_each_row_has_its_command_which_makes_it_again(
    page: str, swept: Path, command: Lockstep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = [unescape(code) for code in re.findall(r"<code>(lockstep .*?)</code>", page)]
    runs = pd.read_parquet(swept / "results.parquet")
    assert len(commands) == len(set(commands)) == len(runs)
    for line, row in zip(commands, runs.to_dict("records"), strict=True):
        words = shlex.split(line)
        assert words[:3] == ["lockstep", "simulate", "scenario.yaml"]
        sets = [word for word in words[3:] if word != "--set"]
        assert (
            table.keys(lockstep.load(swept / "scenario.yaml", sets))["cluster.workers"]
            == row["cluster.workers"]
        )
    monkeypatch.chdir(swept)
    fine(command(*shlex.split(commands[4])[1:], "--quiet", "--out", tmp_path))
    again = table.row(report.gather(tmp_path).drawable.results[0])
    for metric in ("throughput", "duration_s", "staleness.mean", "bytes_sent", "seed", "cluster.workers"):
        assert again[metric] == runs.iloc[4][metric]


@pytest.mark.parametrize(
    "sets",
    [
        [
            "cluster.network.bandwidth=33.3 Gbit/s",
            "cluster.compute.time={distribution: constant, value: 1 ms}",
        ],
        ["strategy=ssp", "cluster.stragglers=[{spells: {every: 10 s, last: 1500 ms}, slowdown: 2.5}]"],
        ["cluster.cores_per_host=4", "stop={time: 3 min}"],
        [
            "workload={parameters: 25_600_000, flops: 4.1e9}",
            "stop={steps: 5}",
            "cluster.compute={peak: 3 TFLOP/s}",
        ],
        ["cluster.network.topology={kind: racks, hosts_per_rack: 2, uplink: 1 Gbit/s}"],
        ["cluster.codecs={int8: {encode: 1 GB/s}}", "strategy.codec=int8"],
        ["cluster.compute=measured", "cluster.servers={count: 2, hierarchy: {groups: 2}}"],
    ],
)
def test_settings_lead_from_one_scenario_to_another(sets: list[str]) -> None:
    base, other = scenarios.load("quickstart"), scenarios.load("quickstart", sets)
    row = pd.DataFrame([table.keys(other)]).iloc[0]
    assert table.keys(scenarios.load("quickstart", settings(base, row))) == table.keys(other)
    assert settings(base, table.keys(base)) == []


@pytest.mark.slow
def test_one_run(sizes_only: Path, tmp_path: Path, command: Lockstep) -> None:
    out = tmp_path / "out"
    fine(command("simulate", sizes_only, "--out", out, "--quiet"))
    fine(command("report", out))
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Predicted: asynchronous with 2 workers processes" in page
    assert "lockstep simulate scenario.yaml</code>" in page
    assert [*report.gather(tmp_path).runs["command"]] == ["lockstep simulate out/scenario.yaml"]


def test_a_damaged_run_of_a_sweep_is_a_warning(swept: Path, tmp_path: Path) -> None:
    for file in ("scenario.yaml", "results.parquet"):
        shutil.copy(swept / file, tmp_path)
    for run in ("0", "1"):
        lockstep.simulate(lockstep.load(swept / "scenario.yaml")).save(tmp_path / "runs" / run)
    (tmp_path / "runs" / "1" / "records.parquet").write_bytes(b"PAR1")
    gathered = report.gather(tmp_path)
    assert len(gathered.drawable.results) == 1
    assert len(gathered.runs) == 12
    (said,) = gathered.left_out
    assert said.startswith("runs/1: its files cannot be read")


@pytest.mark.parametrize("broken", ["missing", "empty", "interrupted", "not parquet"])
def test_bad_input(broken: str, tmp_path: Path, command: Lockstep) -> None:
    folder = tmp_path / "results"
    if broken != "missing":
        folder.mkdir()
    if broken == "interrupted":
        (folder / "records.parquet").touch()
    if broken == "not parquet":
        (folder / "scenario.yaml").write_text(BASE)
        (folder / "results.parquet").write_text("no")
    ended = command("report", folder)
    assert ended.status == 2
    assert re.fullmatch(r"error: .*results.*\n", ended.err)
    assert not list(tmp_path.rglob("*.html"))


def test_words() -> None:
    assert within(8.123, 0.284, "s") == "8.1 ± 0.3 s"
    assert within(1234.5, 12.3) == "1,234 ± 12"
    assert within(None, 0.0) == "–"
    assert within(2.5, 0.0, "s") == "2.5 s"
    assert within(576.91440933878, 2e-11) == "577"  # of rounding alone


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One headless Chromium for all tests."""
    with headless(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def shown(browser: Any, page: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The browser, with the report of the sweep in it."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page, encoding="utf-8")
    browser.get_log("performance")
    browser.get(file.as_uri())
    return browser


@pytest.mark.slow
def test_it_loads_without_network_and_errors(shown: Any) -> None:
    sent = [entry["message"] for entry in shown.get_log("performance")]
    asked = {
        url for line in sent if "requestWillBeSent" in line for url in re.findall(r'"url":"(.*?)"', line)
    }
    assert any(url.endswith("report.html") for url in asked)
    assert {url for url in asked if url.startswith(("http", "ws", "ftp"))} == set()
    assert shown.get_log("browser") == []
    broken = "return [...document.images].filter((image) => !image.complete || !image.naturalWidth).length"
    assert shown.execute_script(broken) == 0


def test_a_click_sorts_by_number(shown: Any) -> None:
    column = """
        const table = document.querySelectorAll("table")[arguments[0]];
        const heads = [...table.tHead.rows[0].cells];
        const place = heads.findIndex((head) => head.textContent.includes(arguments[1]));
        if (arguments[2]) heads[place].querySelector("button").click();
        const texts = [...table.tBodies[0].rows].map((row) => row.cells[place].textContent);
        return [heads[place].getAttribute("aria-sort"), texts];
    """
    _, before = shown.execute_script(column, 0, "Workers", False)
    direction, rising = shown.execute_script(column, 0, "Workers", True)
    assert direction == "ascending"
    assert [int(text) for text in rising] == sorted(map(int, before)) == [2, 2, 3, 3, 10, 10]
    direction, falling = shown.execute_script(column, 0, "Workers", True)
    assert direction == "descending"
    assert falling == rising[::-1]
    _, names = shown.execute_script(column, 0, "Strategy", True)
    assert names == sorted(names)
    assert shown.execute_script(column, 0, "Workers", False)[0] == "none"


_HINTS = """
    const boxes = [...document.querySelectorAll(".scroll:has(table)")].filter((box) => box.checkVisibility());
    const said = (box) => getComputedStyle(box.querySelector(".hint")).display !== "none";
    return boxes.map((box) => [box.scrollWidth > box.clientWidth + 1, said(box)]);
"""


def settled(tables: list[list[bool]]) -> list[list[bool]]:
    """The tables, once each says that it is wider than its place if it is; none before."""
    return tables if all(wider == said for wider, said in tables) else []


def test_a_table_that_fits_does_not_ask_to_be_scrolled(shown: Any) -> None:
    desk = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    shown.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", desk)
    try:
        # a hint follows its table's width in a later frame
        tables = until(lambda: settled(shown.execute_script(_HINTS)), 5)
    finally:
        shown.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert [False, False] in tables


def test_it_fits_a_phone(shown: Any) -> None:
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    shown.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        assert shown.execute_script("return document.documentElement.scrollWidth") == 390
        wide, narrow = shown.execute_script("""
            const picture = document.querySelector("picture"), image = picture.querySelector("img");
            return [image.src, image.currentSrc];
        """)
        tables = until(lambda: settled(shown.execute_script(_HINTS)), 5)
        assert narrow.startswith("data:")
        assert narrow != wide
        assert [True, True] in tables  # it is wider than the screen, and says so
    finally:
        shown.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pictures_are_dark_where_the_page_is(shown: Any, scheme: str) -> None:
    wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)
    corner = """
        const context = document.createElement("canvas").getContext("2d");
        context.drawImage(document.querySelector(".pictures img"), 0, 0);
        return [getComputedStyle(document.body).backgroundColor, [...context.getImageData(1, 1, 1, 1).data]];
    """
    try:
        shown.refresh()
        background, pixel = shown.execute_script(corner)
    finally:
        shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert background == f"rgb({', '.join(map(str, pixel[:3]))})"
    assert (pixel[0] < 128) == (scheme == "dark")


@pytest.mark.slow
def test_it_prints_with_everything_open(shown: Any) -> None:
    shown.execute_script("""
        addEventListener("beforeprint", () => {
          window.opened = document.querySelectorAll("details[open]").length;
        });
    """)
    pdf = base64.b64decode(shown.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2
    assert shown.execute_script("return [window.opened, document.querySelectorAll('details').length]") == [
        1,
        1,
    ]
