"""A recommendation on the terminal, as JSON and as files."""

import hashlib
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from lockstep import scenarios
from lockstep.analysis.bottleneck import of_row
from lockstep.analysis.bottleneck_words import sentence
from lockstep.analysis.gains import lines
from lockstep.analysis.words import NOTHING, number
from lockstep.recommendation import Recommendation
from lockstep.recommendation.ranking import Ranked, as_good, best, peers
from lockstep.recommendation.space import Placement
from lockstep.recommendation.words import answer, changes, how, in_step, samples, wanted, worth
from lockstep.terminal import show_table


def show(found: Recommendation) -> None:
    """The ranking as a table, what limits each, the answer, what would speed it up, and what change it."""
    ranking, goal = found.ranking, found.goal
    title = f"{found.scenario.name}: {found.target}"
    if goal.learns:
        title += f" to {wanted(found)}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.pad_edge = table.show_edge = False
    table.add_column("")
    table.add_column("strategy", min_width=_WIDTH + 2)
    heads = [goal.unit.replace(" per ", "\nper "), "effi-\nciency", "stale-\nness", "hosts"]
    bounded = goal.at_most is not None and goal.target != "cost"
    for head in [*heads, *["USD"] * bounded]:
        table.add_column(head, justify="right")
    yardstick = in_step(ranking)
    if yardstick:
        table.add_column("samples\nneeded", justify="right")
    first = best(ranking)
    for place, each in enumerate(ranking, 1):
        if place > 1 and peers(ranking, each)[0] is each:
            table.add_section()
        cells = [
            f"{place}{'=' if as_good(ranking, each) else ''}",
            _name(found, each),
            worth(each).replace(" (", "\n("),
        ]
        cells += [_few(each.average("efficiency"), "{:.0%}"), _few(each.average("staleness.mean"), "{:.3g}")]
        cells += [number(each.average("hosts"))]
        if bounded:
            cells.append(number(each.average(goal.costs)))
        if yardstick:
            cells.append("in step" if each.in_step else _few(samples(each, yardstick), "< {:.2f}×"))
        table.add_row(*cells, style="bold" if each is first else None)
    show_table(table)
    _list("What limits them:", _limits(ranking))
    said, *more = answer(found)
    _list("The answer:", [("", said), *(("-", line) for line in more)])
    tried: list[tuple[str, str]] = []
    for candidate, gains in found.gains.items():
        tried += [("", f"{candidate.label}:"), *((text, who) for who, text in lines(gains))]
    if tried:
        _list("What a tenth more speed would save (each tried by itself):", tried)
    if found.answers:
        _list("What would change the answer:", [("-", line) for line in changes(found)])
    _list("How it was found:", [("", how(found))])


_WIDTH = 24  # of settings in the table, which leaves room for the rest on 80 columns


def _list(head: str, lines: Sequence[tuple[str, str]]) -> None:
    """A head, and under it what is marked how; long lines are broken between words."""
    print(f"\n{head}")
    grid = Table.grid(padding=(0, 1, 0, 0))
    for mark, line in lines:
        grid.add_row(f"  {mark}", line)
    show_table(grid)


def _limits(ranking: Sequence[Ranked]) -> list[tuple[str, str]]:
    """The places in the ranking, and the bottleneck of those that are there: each bottleneck once."""
    found: dict[str, list[str]] = {}
    for place, each in enumerate(ranking, 1):
        if words := sentence(of_row(each.rows[0])):
            found.setdefault(words, []).append(str(place))
    return [(", ".join(places), words) for words, places in found.items()]


def _name(found: Recommendation, ranked: Ranked) -> str:
    more = list(ranked.candidate.words)
    if ranked.candidate == found.own:
        more.append("(as in the file)")
    if twins := ", ".join(each.strategy for each in found.twins(ranked)):
        more.append(f"({'the same' if found.goal.learns else 'as fast, by the same messages'}: {twins})")
    broken = [line for words in more for line in textwrap.wrap(words, _WIDTH, break_long_words=False)]
    return "\n".join([ranked.candidate.strategy, *(f"  {line}" for line in broken)])


def _few(value: float | None, digits: str) -> str:
    return NOTHING if value is None else digits.format(value)


def as_json(found: Recommendation) -> dict[str, Any]:
    """What `--json` prints."""
    ranking, goal = found.ranking, found.goal
    first = best(ranking)
    search = found.search_
    return {
        "schema": 1,
        "scenario": found.scenario.name,
        "target": found.target,
        "accuracy": found.scenario.stop.target_accuracy if goal.learns else None,
        "until": wanted(found) if goal.learns else None,
        "unit": goal.unit,
        **({} if goal.at_most is None else {"at_most_usd": goal.at_most}),
        "better": "high" if goal.high else "low",
        "answer": " ".join(answer(found)),
        "interrupted": found.interrupted,
        "recommended": first.candidate.label if first.mean is not None else None,
        "ranking": [_ranked(found, each, ranking) for each in ranking],
        "why": {
            candidate.label: [asdict(gain) for gain in gains] for candidate, gains in found.gains.items()
        },
        "what_if": [
            {
                "change": each.change,
                "best": each.best[0].label,
                "faster": each.best[1].label if len(each.best) > 1 else None,
                "other": each.other,
                "values": {one.candidate.label: one.mean for one in each.ranked},
            }
            for each in found.answers
        ],
        **({} if found.checkpoints is None else {"checkpoints": asdict(found.checkpoints)}),
        "search": {
            "simulated": search.simulated,
            "candidates": search.size,
            "seed": found.scenario.seed,
            "strategies": list(search.spaces),
            "left_out": found.left_out,
            "tried": {c.label: goal.value(row) for c, row in search.rows.items() if row["status"] == "ok"},
            "failed": {c.label: row["error"] for c, row in search.rows.items() if row["status"] == "failed"},
        },
    }


def _ranked(found: Recommendation, each: Ranked, ranking: Sequence[Ranked]) -> dict[str, Any]:
    mean = each.mean
    return {
        "point": [*found.search_.rows].index(each.candidate),  # in results.parquet
        "strategy": each.candidate.strategy,
        "label": each.candidate.label,
        "settings": {key: _plain(value) for key, value in each.candidate.settings},
        "mean": mean,
        "low": None if mean is None else mean - each.half,
        "high": None if mean is None else mean + each.half,
        "values": each.values,
        "seeds": [row["seed"] for row in each.rows],
        "as_good": as_good(ranking, each),
        "in_step": each.in_step,
        "if_fewer_samples_than": samples(each, in_step(ranking)),
        "as_in_the_file": each.candidate == found.own,
        "same": [twin.label for twin in found.twins(each)],
        "machines": each.average("hosts"),
        **({} if each.average(found.goal.costs) is None else {"cost": each.average(found.goal.costs)}),
        "throughput": each.average("throughput"),
        "efficiency": each.average("efficiency"),
        "staleness_mean": each.average("staleness.mean"),
        "loss": each.average("loss"),
        "bottleneck": sentence(of_row(each.rows[0])),
        "warnings": sorted({one for row in each.rows for one in json.loads(row.get("warnings", "[]"))}),
    }


def _plain(value: Any) -> Any:
    return value._asdict() if isinstance(value, Placement) else value


def save(found: Recommendation, out: Path, document: Mapping[str, Any]) -> None:
    """Write the runs as a table, the recommendation, the scenario asked about and the recommended one."""
    out.mkdir(parents=True, exist_ok=True)
    table = found.table
    keys = [f"{point} {seed} {stage}" for point, seed, stage in table[["point", "seed", "stage"]].to_numpy()]
    table.insert(1, "run", [hashlib.sha256(key.encode()).hexdigest()[:12] for key in keys])
    table.to_parquet(out / "results.parquet", index=False)
    (out / "scenario.yaml").write_text(scenarios.dump(found.scenario), encoding="utf-8")
    text = json.dumps(document, indent=1, allow_nan=False)
    (out / "recommendation.json").write_text(text + "\n", encoding="utf-8")
    best = found.best.model_copy(update={"sweep": {}})
    (out / "best.yaml").write_text(scenarios.dump(best), encoding="utf-8")
