"""Predicted against measured where processes fail (as root, 9 minutes; nothing else should run).

    python benchmarks/failures.py benchmarks/truth/failures

Six strategies with a crash, a process that stands still and a link that is cut, on the loopback and on the
testbed: goodput and time to recover of both engines, a row a run, in `failures.csv`. What is there is not
measured again, but all is predicted anew, and docs/accuracy.md has the tables (`make accuracy` does that).
Runs and bars (median 5%, all within 15%) were written down before the first was measured. The network of the
loopback is in `loopback.json`.
"""

import json
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

import lockstep
from lockstep.loopback import Loopback, measure_loopback
from lockstep.scenarios.loading import made
from lockstep.studies.accuracy_suite.tables import between_markers
from lockstep.validation import on_loopback, on_testbed

ROOT = Path(__file__).parent.parent
TRUTH, PAGE = ROOT / "benchmarks" / "truth" / "failures", ROOT / "docs" / "accuracy.md"
MADE_BY = "make accuracy, failures"

STRATEGIES: dict[str, str] = {
    "synchronous": "continue",
    "asynchronous": "continue",
    "ssp": "wait",
    "all-reduce": "restart",
    "local-sgd": "restart",
    "gossip": "restart",
}
"""A strategy, and what its job does about failures."""
FAULTS: dict[str, dict[str, Any]] = {
    "crash": {"worker": 1, "at": "3 s", "crash": True, "back_after": "4 s"},
    "hang": {"worker": 1, "at": "3 s", "hang_for": "4 s"},
    "link": {"link": {"host": 1}, "at": "3 s", "down_for": "4 s"},
}
KEYS = ("goodput", "time_to_recover_s", "availability")
WORDS = {"goodput": "goodput", "time_to_recover_s": "time to recover"}
RUN, PLACES = ("where", "strategy", "fault"), ("loopback", "testbed")
SIZE = 20_000  # parameters


def scenario(strategy: str, fault: str) -> lockstep.Scenario:
    """Four workers, 12 s; a failure is noticed after one, and is over after four."""
    return made(
        {
            "name": f"{strategy}-{fault}",
            "cluster": {
                "workers": 4,
                "servers": 1,
                "compute": {"time": {"distribution": "gamma", "mean": "80 ms", "cv": 0.2}},
                "network": {"bandwidth": "50 Mbit/s", "latency": "400 us", "message_overhead": "140 us"},
                "detect": "1 s",
                "faults": [FAULTS[fault]],
            },
            "workload": {"parameters": SIZE, "batch_size": 32},
            "strategy": strategy,
            "stop": {"time": "12 s"},
            "recovery": {"on_failure": STRATEGIES[strategy], "checkpoint": {"every": "10 updates"}},
        }
    )


def predicted(row: dict[str, Any], loopback: Loopback) -> dict[str, float]:
    """What the simulator says of a row's run."""
    one = scenario(row["strategy"], row["fault"])
    there = on_testbed(one) if row["where"] == "testbed" else on_loopback(one, loopback)
    metrics = lockstep.simulate(there).metrics
    return {f"predicted {key}": metrics[key] for key in KEYS}


def measured(row: dict[str, Any]) -> dict[str, Any]:
    """A row's run."""
    one = scenario(row["strategy"], row["fault"])
    metrics = lockstep.run(one, testbed=row["where"] == "testbed", attempts=3).metrics
    return {f"measured {key}": metrics[key] for key in KEYS} | {"disturbed": metrics["disturbed"]}


def loopback_of(folder: Path) -> Loopback:
    """The loopback there, measured if it has not been."""
    file = folder / "loopback.json"
    if not file.exists():
        file.write_text(json.dumps(asdict(measure_loopback(SIZE)), indent=1) + "\n", encoding="utf-8")
    return Loopback(**json.loads(file.read_text("utf-8")))


def main(folder: Path) -> None:
    """Measure what is not there yet, predict all of it, and say how near that is."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "failures.csv"
    found = pd.read_csv(file).to_dict("records") if file.exists() else []
    rows = {(row["where"], row["strategy"], row["fault"]): row for row in found}
    loopback = loopback_of(folder)
    for where, strategy, fault in product(PLACES, STRATEGIES, FAULTS):
        key = where, strategy, fault
        if key not in rows:
            rows[key] = {"where": where, "strategy": strategy, "fault": fault}
            rows[key] |= measured(rows[key])
        rows[key] |= predicted(rows[key], loopback)
        print(*rows[key].values(), flush=True)
        pd.DataFrame([*rows.values()]).to_csv(file, index=False)
    if folder.resolve() == TRUTH:
        text = between_markers(PAGE.read_text("utf-8"), tables(pd.read_csv(file)), MADE_BY)
        PAGE.write_text(text, encoding="utf-8")


def tables(rows: pd.DataFrame) -> str:
    """The bars, and the errors run by run, for the page."""
    quiet = rows[~rows["disturbed"].astype(bool)]
    bars = ["| of 36 runs with failures | bar | found |", "|---|---:|---:|"]
    errors = []
    for key, words in WORDS.items():
        sizes = error(quiet, key).abs()
        bars.append(f"| error of {words}, median | ≤ 5% | {sizes.median():.1%} |")
        bars.append(f"| error of {words}, maximum | ≤ 15% | {sizes.max():.1%} |")
        errors += ["", f"**{words}**, predicted ÷ measured − 1", "", *_errors(rows, key)]
    return "\n".join([*bars, *errors])


def _errors(rows: pd.DataFrame, key: str) -> list[str]:
    columns = [*product(PLACES, FAULTS)]
    lines = [f"| | recovery | {' | '.join(f'{where}: {fault}' for where, fault in columns)} |"]
    lines.append("|---|---|" + "---:|" * len(columns))
    by_run = dict(zip(zip(*(rows[name] for name in RUN), strict=True), error(rows, key), strict=True))
    for strategy, recovery in STRATEGIES.items():
        values = (f"{by_run[where, strategy, fault]:+.1%}".replace("-", "−") for where, fault in columns)
        lines.append(f"| `{strategy}` | `{recovery}` | {' | '.join(values)} |")
    return lines


def error(rows: pd.DataFrame, key: str) -> "pd.Series[float]":
    """Predicted ÷ measured − 1 of each row."""
    return rows[f"predicted {key}"] / rows[f"measured {key}"] - 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
