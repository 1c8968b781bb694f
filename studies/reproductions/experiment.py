"""Tries claims: makes their runs, on all cores, keeps what is measured as it comes, and judges."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from lockstep.pool import results
from lockstep.studies.reproductions.claim import Claim, Metrics, Runs, verdict
from lockstep.studies.reproductions.table import markdown

Progress = Callable[[float], None]
Found = dict[str, Any]
Keep = Callable[[Claim, tuple[str, int], Metrics], None]


def judge(
    these: Sequence[Claim], progress: Progress | None = None, out: Path | None = None, jobs: int | None = None
) -> Found:
    """Try the claims; `progress` is told the fraction of the runs done; `jobs` processes, or one a core.

    What `lockstep claims --json` prints: `claims`, each with its checks and verdict, and how many have which
    `verdicts`. With `out`, that and the metrics of every run are written there as they come.
    """
    runs = [(claim, key, scenario) for claim in these for key, scenario in claim.scenarios().items()]
    made: dict[str, dict[tuple[str, int], Metrics]] = {claim.name: {} for claim in these}
    found = _summary([])
    calls = [partial(claim.measure, scenario) for claim, _, scenario in runs]
    with _kept(out) as keep, results(calls, jobs) as all_metrics:
        for done, ((claim, key, _), metrics) in enumerate(zip(runs, all_metrics, strict=True), 1):
            keep(claim, key, metrics)
            made[claim.name][key] = metrics
            if len(made[claim.name]) == len(claim.variants) * claim.seeds:
                found = _summary([*found["claims"], _judged(claim, Runs(made[claim.name]))])
                if out is not None:
                    write(found, out)
            if progress is not None:
                progress(done / len(runs))
    return found


def write(found: Found, out: Path) -> None:
    """Write claims.json and claims.md."""
    (out / "claims.json").write_text(json.dumps(found, allow_nan=False, indent=1) + "\n", encoding="utf-8")
    (out / "claims.md").write_text(markdown(found), encoding="utf-8")


def _judged(claim: Claim, runs: Runs) -> dict[str, Any]:
    checks = claim.checks(runs)
    return {
        "claim": claim.name,
        "statement": claim.statement,
        "source": claim.source,
        "published": claim.published,
        "seeds": claim.seeds,
        "runs": claim.seeds * len(claim.variants),
        "checks": [
            {
                "what": check.what,
                "mean": _finite(check.value.mean),
                "interval": [_finite(check.value.low), _finite(check.value.high)],
                "above": _finite(check.above),
                "below": _finite(check.below),
                "holds": check.holds,
            }
            for check in checks
        ],
        "verdict": verdict(checks),
    }


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def _summary(rows: list[dict[str, Any]]) -> Found:
    verdicts = [row["verdict"] for row in rows]
    counts = {name: verdicts.count(name) for name in ("holds", "does not hold", "undecided")}
    return {"schema": 1, "claims": rows, "verdicts": counts}


@contextmanager
def _kept(out: Path | None) -> Iterator[Keep]:
    """What writes the metrics of a run, at once: nothing is lost by an interruption."""
    if out is None:
        yield lambda claim, key, metrics: None
        return
    out.mkdir(parents=True, exist_ok=True)
    with (out / "runs.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["claim", "variant", "seed", "metric", "value"])

        def keep(claim: Claim, key: tuple[str, int], metrics: Metrics) -> None:
            table.writerows([claim.name, *key, metric, repr(value)] for metric, value in metrics.items())
            file.flush()

        yield keep
