"""A profile as a table for people."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from lockstep.scenarios.profile import called
from lockstep.terminal import show_table


def rows(profile: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each value with its interval, for a spreadsheet; quantities have their units."""
    values = dict(_flat(profile["cluster"]))
    for entry in profile["compute"]:
        values |= {
            f"compute.{called(entry['workload'])}.{key}": value for key, value in _flat(entry["compute"])
        }
    for key, value in values.items():
        low, high = profile["intervals"].get(key.replace(".time.", "."), (None, None))
        yield {"key": key, "value": value, "low": low, "high": high}


def show(profile: Mapping[str, Any], written: list[Path]) -> None:
    """Each value, its interval, and what it is worth."""
    table = Table(
        "", "found", "95%", "", title=f"Measured: {profile['measured']['host']}", title_justify="left"
    )
    intervals, evidence = profile["intervals"], profile["evidence"]
    for key, value in _flat(profile["cluster"]):
        table.add_row(key, str(value), _interval(intervals.get(key)), _note(key, evidence))
    for entry in profile["compute"]:
        table.add_section()
        name = called(entry["workload"])
        found = evidence.get("compute", {}).get(name, {})
        time = entry["compute"]["time"]
        table.add_row(f"compute, {name}", time["distribution"], "", _fitness(found))
        values = {**time, "backward": entry["compute"].get("backward")}
        for key, value in values.items():
            if key != "distribution" and value is not None:
                table.add_row(f"  {key}", str(value), _interval(intervals.get(f"compute.{name}.{key}")), "")
        if (loading := entry["compute"].get("loading")) is not None:
            table.add_row(
                "  loading", loading["distribution"], "", _fitness(found.get("loading", {}), "mini-batches")
            )
            for key, value in loading.items():
                if key != "distribution":
                    ends = _interval(intervals.get(f"compute.{name}.loading.{key}"))
                    table.add_row(f"    {key}", str(value), ends, "")
    show_table(table)
    if disturbed := evidence.get("disturbed"):
        print(f"Disturbed each time: {', '.join(disturbed)}. Calibrate again when the machine is quiet.")
    print(f"Written: {', '.join(map(str, written))}.")


def _flat(values: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in values.items():
        rows += _flat(value, f"{above}{key}.") if isinstance(value, dict) else [(above + key, value)]
    return rows


def _interval(ends: Any) -> str:
    return "" if ends is None else f"{ends[0]} to {ends[1]}"


def _fitness(found: Mapping[str, Any], what: str = "gradients") -> str:
    if not found:
        return ""
    best = found["fits"][0]
    return f"{found['gradients']} {what}; off by {best['KS']:.1%} at most (KS; p = {best['p']:.2g})"


def _note(key: str, evidence: Mapping[str, Any]) -> str:
    if key == "cores_per_host" and "cores" in evidence:
        return f"effective: {evidence['cores']['effective']:.3g}"
    if key == "memory_bandwidth" and "apply" in evidence and "network" not in evidence:
        off = [each for rule in evidence["apply"]["rules"].values() for each in rule["off"]]
        return f"by rule and size, updates come out {min(off):+.0%} to {max(off):+.0%} off"
    return ""
