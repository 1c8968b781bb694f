"""The tables of docs/systems.md: what each system is, and published beside predicted."""

from collections.abc import Iterable, Mapping
from typing import Any

import lockstep
from lockstep.scenarios import override
from lockstep.studies.systems.system import Published, System
from lockstep.studies.systems.table import SYSTEMS


def overview() -> str:
    """A row a system."""
    head = ("system", "architecture", "consistency", "placement", "communication", "parallelism")
    return _table(
        head,
        ([f"[{s.name}](#{anchor(s)})", *(getattr(s, key) for key in head[1:])] for s in SYSTEMS),
    )


def sections() -> str:
    """A section a system: its scenario, its factor, what is not there, its source, and its picture."""
    return "\n".join(map(_section, SYSTEMS))


def published() -> str:
    """Published beside predicted."""
    head = ("system", "what", "published, samples/s", "predicted, samples/s", "error", "verdict", "source")
    return _table(head, (_compared(s, each) for s in SYSTEMS for each in s.published))


def anchor(system: System) -> str:
    """Of its heading."""
    return _anchor(system.name)


def _anchor(heading: str) -> str:
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -")
    return kept.replace(" ", "-")


def _section(system: System) -> str:
    stem = system.scenario.rpartition("/")[2]
    lines = [
        f"### {system.name}",
        "",
        f"`lockstep simulate {system.scenario}`. Its factor: {system.factor} "
        f"(taken away by {_keys(system.without)}).",
        *(
            f"Also `{each.scenario}`: {each.factor} (taken away by {_keys(each.without)})."
            for each in system.also
        ),
        *([f"Not here: {system.lacking}."] if system.lacking else []),
        f"After {system.source}.",
        _published(system),
        "",
        f"![{system.name}: what everybody does in the first iterations](systems/{stem}.png)",
        "",
    ]
    return "\n".join(lines)


def _published(system: System) -> str:
    """Where figures are, or why there are none."""
    links = ", ".join(f"[{name}](published.md#{_anchor(name)})" for name in system.tables)
    parts = ["above"] * bool(system.published) + [f"predicted by the table, {links}"] * bool(links)
    return f"Published: {'; '.join([*parts, system.unread] if system.unread else parts)}."


def _keys(without: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}={value}`" for key, value in without.items())


def _compared(system: System, figure: Published) -> list[str]:
    config = lockstep.load(figure.scenario)
    for key, value in figure.changes.items():
        config = override(config, key, value)
    predicted = float(lockstep.simulate(config).metrics["throughput"])
    error = 100 * (predicted / figure.value - 1)
    return [
        system.name,
        f"{figure.what} (`{figure.scenario}`)",
        f"{figure.value:,.0f}",
        f"{predicted:,.0f}",
        f"{error:+.0f}%",
        figure.verdict,
        figure.source,
    ]


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), ""])
