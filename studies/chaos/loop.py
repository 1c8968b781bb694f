"""Trial after trial, and what comes of them."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from lockstep.scenarios import Scenario, ScenarioError
from lockstep.studies.chaos import Trial, blows, drawn


def simulated(
    scenario: Scenario, runs: int, seed: int, progress: Callable[[float], None] | None = None
) -> list[Trial]:
    """So many runs in virtual time. Raises ScenarioError."""
    if runs < 1:
        raise ScenarioError(f"{runs} runs; give at least 1", key="simulated")
    found: list[Trial] = []
    for trial in islice(drawn.trials(scenario, seed), runs):
        found.append(trial)
        if progress is not None:
            progress(len(found) / runs)
    return found


def real(
    scenario: Scenario,
    mtbf_s: float,
    for_s: float,
    testbed: bool,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> list[Trial]:
    """Real runs for so long; the last one ends. Raises ScenarioError, RunFailed: see `blows.trials`."""
    for key, value in {"mtbf": mtbf_s, "for": for_s}.items():
        if value <= 0:
            raise ScenarioError(f"{value:g} s; give more than 0 s", key=key)
    began, found = time.monotonic(), list[Trial]()
    for trial in blows.trials(scenario, seed, mtbf_s, testbed):
        found.append(trial)
        done = (time.monotonic() - began) / for_s
        if progress is not None:
            progress(min(1.0, done))
        if done >= 1:
            break
    return found


def document(found: Sequence[Trial]) -> dict[str, Any]:
    """What `--json` prints."""
    wrong = [asdict(trial) for trial in found if trial.wrong]
    return {"runs": len(found), "ends": dict(Counter(trial.end for trial in found)), "broken": wrong}
