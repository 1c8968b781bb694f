"""The report as one HTML page that needs nothing else: style, script and pictures are in it."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.report import tables
from analysis.report.answer import Answer, answer, target, validation
from analysis.report.asked import asked
from analysis.report.gather import Gathered
from analysis.report.pictures import pictures
from analysis.report.points import Point, points, varied
from analysis.words import count
from scenarios.sweep import parts

_HERE = Path(__file__).parent
_KINDS = {
    "run": "one run",
    "runs": "several runs",
    "sweep": "a sweep",
    "validation": "predicted and measured",
}
_PATH = re.compile(r"(?<![\w.:/…])/(?:[^/\s'\":,]+/)+")


def page(gathered: Gathered, versions: Mapping[str, str]) -> str:
    """The HTML of what was gathered; the same bytes for the same folder and versions."""
    import jinja2

    loader = jinja2.FileSystemLoader(_HERE)
    settings: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **settings)
    environment.filters["private"] = without_folders
    style, script = ((_HERE / file).read_text(encoding="utf-8") for file in ("style.css", "table.js"))
    return (
        environment.get_template("template.html.j2").render(
            **_content(gathered),
            versions=versions,
            style=style,
            script=script,
            style_sha256=_sha256(style),
            script_sha256=_sha256(script),
        )
        + "\n"
    )


def without_folders(text: str) -> str:
    """A text in which files have no folders: a report is shown to others."""
    return _PATH.sub("…/", str(text))


def _content(gathered: Gathered) -> dict[str, Any]:
    runs = gathered.runs
    swept = [key for part in parts(gathered.scenario.sweep) for each in part for key in each.changes]
    keys = varied(runs, swept)
    if gathered.kind == "validation":  # a real run has another network
        keys = ["strategy.name", "cluster.workers", "engine"]
    found = points(runs, keys)
    answered = answer(found, gathered.ended)
    sentence, notes = answered.sentence, answered.notes
    if gathered.kind == "validation":
        sentence, notes = validation(gathered.comparisons)
    single = len(runs) == 1
    compared = _compared(runs, keys)
    return {
        "title": gathered.scenario.name,
        "kind": _KINDS[gathered.kind],
        "many": "" if single else count(len(runs), "run"),
        "sentence": sentence,
        "notes": notes,
        "tiles": _tiles(answered) if gathered.kind != "validation" else [],
        "asked": asked(gathered.scenario, compared),
        "yaml": gathered.yaml,
        "pictures": pictures(gathered),
        "comparisons": tables.of_comparisons(gathered.comparisons) if gathered.comparisons else None,
        "figures": tables.of_one(runs.iloc[0]) if single and len(gathered.ended) else [],
        "points": None
        if single or gathered.kind == "validation"
        else tables.of_points(answered.ranking, target(runs)),
        "warnings": tables.warnings(found),
        "left_out": gathered.left_out,
        "failures": tables.failures(runs, keys),
        "runs": tables.of_runs(runs, keys),
        "several": gathered.kind in ("runs", "validation"),
        "measured": bool((runs["engine"] == "executor").any()),
    }


def _compared(runs: Any, keys: list[str]) -> dict[str, list[Any]]:
    """The values of every key that is not the same in all runs, in the order in which they come."""
    found = {}
    for key in (*keys, "seed"):
        values = [value for value in dict.fromkeys(runs[key]) if value is not None and value == value]
        if len(values) > 1:
            found[key] = values
    if "engine" in found:
        found["engine"] = [{"simulator": "predicted", "executor": "measured"}[e] for e in found["engine"]]
    return found


def _tiles(answered: Answer) -> list[tuple[str, str, str]]:
    """Key figures of the best point: value, unit, what it is."""
    best: Point = answered.ranking[0]
    wanted = [
        ("time_to_target_s", "s", 1.0, "to the target"),
        ("throughput", "", 1.0, "samples/s"),
        ("speedup", "×", 1.0, "speedup over one worker"),
        ("efficiency", "%", 100.0, "efficiency"),
        ("accuracy", "%", 100.0, "final accuracy"),
    ]
    return [
        (best.figures[metric].text(times=times), unit, what)
        for metric, unit, times, what in wanted
        if best.figures[metric].mean is not None
    ]


def _sha256(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
