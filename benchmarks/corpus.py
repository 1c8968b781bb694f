"""A corpus of simulations, written with one checkout and compared with another: does any bit differ?

    python benchmarks/corpus.py write OLD.json [--jobs N] [PART OF A NAME …]
    python benchmarks/corpus.py compare OLD.json NEW.json
    python benchmarks/corpus.py coverage OLD.json

PYTHONPATH decides which checkout simulates; this file uses nothing of it but its public interface. How to go
about it: benchmarks/RESULTS.md.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from random_scenarios import FILES, draw

import lockstep

RANDOM = 500
# Keys of a scenario that have been renamed, new: old.
RENAMED = {"worker_loop": "schedule", "correction": "rule"}
Entry = dict[str, Any]


class Asked(NamedTuple):
    """A scenario: a shipped one with changes, or a document."""

    name: str
    source: str | dict[str, Any]
    changes: Sequence[str] = ()


def everything() -> Iterator[Asked]:
    """All of the corpus. The one shipped scenario that would download its data learns nothing here."""
    for name in _listed("scenarios"):
        yield Asked(name, name, ["workload.learning=false"] if name.startswith("mnist") else [])
    for strategy in _listed("strategies"):
        for base, steps in (("quickstart", 12), ("sizes-only", 6)):
            yield Asked(f"{base}+{strategy}", base, [f"strategy={strategy}", f"stop={{steps: {steps}}}"])
    for cluster in _listed("clusters"):
        for workload in _listed("workloads"):
            for strategy in ("all-reduce", "synchronous", "asynchronous"):
                changes = [
                    f"cluster={cluster}",
                    f"workload={workload}",
                    f"strategy={strategy}",
                    "stop={steps: 4}",
                ]
                yield Asked(f"{cluster}+{workload}+{strategy}", "sizes-only", changes)
    for profile in _listed("profiles"):
        compute = "compute: {time: {distribution: exponential, mean: 10 ms}}"
        network = "network: {bandwidth: 50 Mbit/s}"
        cluster = f"cluster={{workers: 4, profile: {profile}, {network}, {compute}}}"
        yield Asked(f"profile+{profile}", "quickstart", [cluster, "stop={steps: 12}"])
    for number in range(RANDOM):
        yield Asked(f"random-{number:03}", draw(number))


def _listed(what: str) -> list[str]:
    """The names that `lockstep scenarios` and its like list."""
    command = [sys.executable, "-c", "from lockstep.cli import main; main()", what, "--json"]
    return list(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def entry(asked: Asked) -> Entry:
    """What simulating a scenario gives, or the error that it ends in."""
    source = (
        asked.source if isinstance(asked.source, dict) else {"source": asked.source, "changes": asked.changes}
    )
    with TemporaryDirectory() as folder:
        found: Entry = {"asked": source, "scenario": _sha256(_canonical(source))}
        try:
            scenario = lockstep.load(_file(asked, Path(folder)), asked.changes)
            given = scenario.model_dump(mode="json", by_alias=True, exclude_unset=True)
            found["scenario"] = _sha256(_bare(_canonical(_in_old_words(given)), folder))
            result = lockstep.simulate(scenario)
            metrics, engine_warnings = _canonical(result.metrics), _canonical(list(result.warnings))
        except Exception as error:  # whatever it is, the other checkout should end so too
            return found | {"error": [type(error).__name__, _bare(str(error), folder)]}
        return found | {
            "records": _digest(result.records),
            "parameters": None if result.parameters is None else _bits(result.parameters),
            "warnings": json.loads(_bare(engine_warnings, folder)),
            "utilisation": None if result.utilisation is None else _digest(result.utilisation),
            "metrics": json.loads(_bare(metrics, folder)),
        }


def _file(asked: Asked, folder: Path) -> str | Path:
    if isinstance(asked.source, str):
        return asked.source
    for name, text in FILES.items():
        (folder / name).write_text(text)
    file = folder / f"{asked.name}.yaml"
    file.write_text(json.dumps(asked.source, indent=1))  # YAML too
    return file


def _bare(text: str, folder: str) -> str:
    return text.replace(f"{folder}/", "")


def _in_old_words(scenario: dict[str, Any]) -> dict[str, Any]:
    strategy = {RENAMED.get(key, key): value for key, value in scenario["strategy"].items()}
    return {**scenario, "strategy": strategy}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _sha256(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _digest(table: pd.DataFrame) -> Entry:
    """The number of rows, and the sha256 of each column: of its values, whatever type holds them."""
    return {"rows": len(table)} | {str(name): _bits(table[name]) for name in sorted(table.columns)}


def _bits(values: Any) -> str:
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        return sha256(array.astype("<i8").tobytes()).hexdigest()
    if array.dtype.kind == "f":
        wide = array.astype("<f8")
        wide[np.isnan(wide)] = np.nan  # of which there are many
        return sha256(wide.tobytes()).hexdigest()
    return _sha256(json.dumps(array.tolist()))


def write(file: Path, jobs: int, parts: Sequence[str]) -> None:
    """Simulate all whose names have one of the parts, or everything."""
    chosen = [asked for asked in everything() if not parts or any(part in asked.name for part in parts)]
    if not chosen:
        sys.exit(f"no scenario has {' or '.join(parts)} in its name")
    start, found = time.monotonic(), {}
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for asked, one in zip(chosen, pool.imap(entry, chosen), strict=True):
            found[asked.name] = one
            if len(found) % 50 == 0:
                print(f"{len(found)} of {len(chosen)}, {time.monotonic() - start:.0f} s", file=sys.stderr)
    file.write_text(json.dumps(found, sort_keys=True, indent=1) + "\n")
    refused = sum("error" in one for one in found.values())
    print(f"{len(found)} scenarios, of which {refused} end in an error: {time.monotonic() - start:.0f} s")
    print(f"simulated by {Path(lockstep.__file__).parent}; sha256 {_sha256(file.read_text())}")


def differences(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Iterator[tuple[str, str, str]]:
    """(scenario, key, what it was and is) of everything that differs."""
    for name in sorted({*old, *new}):
        if name not in old or name not in new:
            yield name, "", f"is only in the {'new' if name in new else 'old'} one"
            continue
        before, after = _flat(old[name]), _flat(new[name])
        for key in sorted({*before, *after}):
            was, now = before.get(key, "nothing"), after.get(key, "nothing")
            if was != now:
                digests = len(was) == len(now) == 66  # quoted: nobody reads them
                yield name, key, "" if digests else f"{was:.120} → {now:.120}"


def _flat(one: Entry) -> dict[str, str]:
    """The entry's values as text, those of its mappings by dotted key."""
    found = {}
    for key, value in one.items():
        if key == "asked":  # it says what "scenario" says
            continue
        if key in ("records", "utilisation", "metrics") and isinstance(value, dict):
            found |= {f"{key}.{inner}": json.dumps(each) for inner, each in value.items()}
        else:
            found[key] = json.dumps(value, ensure_ascii=False)
    return found


def compare(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> int:
    """Print what differs, by scenario and then by key; 1 if anything does."""
    found = [*differences(old, new)]
    for name, of_it in groupby(found, lambda one: one[0]):
        keys = [(key, change) for _, key, change in of_it]
        for key, change in keys:
            if change:
                print(f"{name}: {key} {change}" if key else f"{name} {change}")
        if bits := [key for key, change in keys if not change]:
            print(f"{name}: other bits in {', '.join(bits)}")
    both = len({*old} & {*new})
    print(f"{both} scenarios are in both; {len({name for name, _, _ in found})} differ.")
    for key, count in Counter(key for _, key, _ in found).most_common():
        print(f"{count:6} {key or '(missing)'}")
    return int(bool(found))


def coverage(corpus: Mapping[str, Entry]) -> None:
    """Print how many random scenarios that simulate have each key, and each word as a value."""
    ran = [one["asked"] for name, one in corpus.items() if name.startswith("random-") and "error" not in one]
    print(f"{len(ran)} random scenarios simulate")
    for key, count in sorted(Counter(key for one in ran for key in {*_keys(one)}).items()):
        print(f"{count:6} {key}")


def _keys(value: Any, at: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _keys(inner, f"{at}.{key}" if at else key)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner, f"{at}[]")
    elif isinstance(value, bool) or (isinstance(value, str) and " " not in value and at != "name"):
        yield f"{at}={value}"
    else:
        yield at


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    writing = actions.add_parser("write")
    writing.add_argument("file", type=Path)
    writing.add_argument("parts", nargs="*", metavar="PART", help="only scenarios with this in their names")
    writing.add_argument("--jobs", type=int, default=1)
    comparing = actions.add_parser("compare")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    covering = actions.add_parser("coverage")
    covering.add_argument("file", type=Path)
    given = parser.parse_args()
    if given.action == "write":
        write(given.file, given.jobs, given.parts)
    elif given.action == "compare":
        sys.exit(compare(*(json.loads(file.read_text()) for file in (given.old, given.new))))
    else:
        coverage(json.loads(given.file.read_text()))


if __name__ == "__main__":
    main()
