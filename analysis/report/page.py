"""The report as one HTML page that needs nothing else: style, script and pictures are in it."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from lockstep.analysis.bottleneck import typical_run
from lockstep.analysis.gains import Gain, lines
from lockstep.analysis.report import tables
from lockstep.analysis.report.answer import Answer, answer, recommended, validation
from lockstep.analysis.report.asked import asked
from lockstep.analysis.report.brief import Brief, brief, of_validation
from lockstep.analysis.report.gather import Gathered
from lockstep.analysis.report.groups import Group, groups, works
from lockstep.analysis.report.pictures import first, pictures
from lockstep.analysis.report.points import Point, points, varied
from lockstep.analysis.what_if import WhatIf
from lockstep.analysis.words import count
from lockstep.scenarios.sweep import parts

_HERE = Path(__file__).parent
_KINDS = {
    "run": "one run",
    "runs": "several runs",
    "sweep": "a sweep",
    "recommendation": "a recommendation",
    "validation": "predicted and measured",
}
T = TypeVar("T")
_SENTENCES = 4  # in a headline
_PATH = re.compile(r"(?<![\w.:/…])/(?:[^/\s'\":,]+/)+")


def page(
    gathered: Gathered,
    versions: Mapping[str, str],
    gains: Sequence[Gain] | None = None,
    way: WhatIf | None = None,
) -> str:
    """The HTML of what was gathered; the same bytes for the same folder, versions and what was tried."""
    import jinja2

    loader = jinja2.FileSystemLoader(_HERE)
    settings: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, **settings)
    environment.filters["private"] = without_folders
    style, script = ((_HERE / file).read_text(encoding="utf-8") for file in ("style.css", "table.js"))
    return (
        environment.get_template("template.html.j2").render(
            **_content(gathered, gains, way),
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


def best_run(gathered: Gathered) -> pd.Series | None:
    """The run that stands for the best point, a row of `gathered.runs`; None if no run has ended."""
    return typical_run(_tried(_answers(gathered)).ranking[0].runs)


def _answers(
    gathered: Gathered, gains: Sequence[Gain] | None = None, way: WhatIf | None = None
) -> dict[Group, Answer]:
    """The answer of each group of runs; `gains` and `way` are those of `_tried`'s."""
    if gathered.recommendation is not None:
        return {next(iter(groups(gathered.runs))): recommended(gathered.recommendation, _ranking(gathered))}
    found = {}
    for group, runs in groups(gathered.runs).items():
        at = points(runs, varied(runs, _swept(gathered)))
        found[group] = (at, runs[runs["status"] == "ok"])
    first = _tried(found)
    return {group: answer(*each, *((gains, way) if each is first else ())) for group, each in found.items()}


def _ranking(gathered: Gathered) -> list[Point]:
    """The points of a recommendation, the recommended one first."""
    document = gathered.recommendation or {}
    entries = sorted(document["ranking"], key=lambda each: each["label"] != document["recommended"])
    places = {each["point"]: place for place, each in enumerate(entries)}
    found = points(gathered.runs, varied(gathered.runs))
    return sorted(found, key=lambda each: min(places.get(p, len(places)) for p in each.runs["point"]))


def _tried(groups: Mapping[Group, T]) -> T:
    """Of the groups that whose best run may be tried: the first that was predicted, if any was."""
    predicted = (each for group, each in groups.items() if group.engine == "simulator")
    return next(predicted, next(iter(groups.values())))


def _swept(gathered: Gathered) -> list[str]:
    return [key for part in parts(gathered.scenario.sweep) for each in part for key in each.changes]


def _keys(gathered: Gathered) -> list[str]:
    """The keys in which points differ."""
    if gathered.kind == "validation":  # a real run has another network
        return ["strategy.name", "cluster.workers", "engine"]
    return varied(gathered.runs, _swept(gathered))


def _content(gathered: Gathered, gains: Sequence[Gain] | None, way: WhatIf | None) -> dict[str, Any]:
    runs, keys = gathered.runs, _keys(gathered)
    found = points(runs, keys)
    answers = _answers(gathered, gains, way)
    validated = gathered.kind == "validation"
    sentences, notes = _said(answers, gathered)
    single = len(runs) == 1
    compared = _compared(runs, keys)
    drawn = pictures(gathered, way)
    at_top = first(drawn, gathered.kind, next(iter(answers.values())).goal.metric)
    return {
        "title": gathered.scenario.name if runs["name"].nunique() == 1 else gathered.folder.absolute().name,
        "kind": _KINDS[gathered.kind],
        "many": "" if single else count(len(runs), "run"),
        "sentences": sentences,
        "notes": notes,
        "tiles": _tiles(*answers.values()) if len(answers) == 1 and not validated else [],
        "asked": asked(gathered.scenario, compared, works(runs).unique().tolist()),
        "yaml": gathered.yaml if runs["name"].nunique() == 1 else "",
        "first_picture": at_top,
        "brief": _brief(answers, gathered, gains, way),
        "pictures": [each for each in drawn if each is not at_top],
        "gains": lines(gains) if gains else [],
        "gains_of": "" if single else _tried(answers).ranking[0].name,
        "comparisons": tables.of_comparisons(gathered.comparisons) if gathered.comparisons else None,
        "metrics": tables.of_one(runs.iloc[0]) if single and len(gathered.ended) else [],
        "points": []
        if single or validated
        else [
            tables.of_points(each.ranking, each.wanted, group.title if len(answers) > 1 else "")
            for group, each in answers.items()
        ],
        "warnings": tables.warnings(found),
        "left_out": gathered.left_out,
        "failures": tables.failures(runs, keys),
        "runs": tables.of_runs(runs, keys),
        "several": gathered.kind in ("runs", "validation"),
        "measured": bool((runs["engine"] == "executor").any()),
    }


def _said(answers: Mapping[Group, Answer], gathered: Gathered) -> tuple[list[str], list[str]]:
    """The answer of each group of runs, and notes on them; what there is no room for is counted."""
    left_out = [f"Left out: {each}." for each in gathered.left_out]
    if gathered.kind == "validation":
        sentence, notes = validation(gathered.comparisons)
        return [sentence], [*notes, *left_out]
    sentences = [f"{group.title}: {each.sentence}" for group, each in answers.items()]
    notes = list(dict.fromkeys(note for each in answers.values() for note in each.notes))
    if len(sentences) > 1:
        notes.insert(0, "Predicted and measured runs, and those of different workloads, are not compared.")
    if (more := len(sentences) - _SENTENCES) > 0:
        notes.insert(0, f"{count(more, 'more answer')}: the tables of points have them.")
    if (more := len(left_out) - _SENTENCES) > 0:
        left_out[_SENTENCES:] = [f"Left out besides: {more}; the warnings name them."]
    return sentences[:_SENTENCES], [*notes, *left_out]


def _brief(
    answers: Mapping[Group, Answer], gathered: Gathered, gains: Sequence[Gain] | None, way: WhatIf | None
) -> Brief:
    """What would change the answer, what it costs, how sure it is; of several groups that which is tried."""
    if gathered.kind == "validation":
        return of_validation(gathered.comparisons)
    its = _tried(answers)
    group = next(group for group, each in answers.items() if each is its)
    found = brief(its, group.engine, gains, gathered.recommendation, way)
    return [(f"{head}: {group.title}" if len(answers) > 1 else head, lines) for head, lines in found]


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
    """Key metrics of the best point: value, unit, what it is."""
    best: Point = answered.ranking[0]
    wanted = [
        ("time_to_target_s", "s", 1.0, "to the target"),
        ("throughput", "", 1.0, "samples/s"),
        ("speedup", "×", 1.0, "speedup over one worker"),
        ("efficiency", "%", 100.0, "efficiency"),
        ("accuracy", "%", 100.0, "final accuracy"),
        ("cost_to_target", "USD", 1.0, "to the target"),
        ("cost_of_million", "USD", 1.0, "a million samples"),
    ]
    return [
        (best.metrics[metric].text(times=times), unit, what)
        for metric, unit, times, what in wanted
        if best.metrics[metric].mean is not None
    ]


def _sha256(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
