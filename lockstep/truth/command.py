"""The command `lockstep validate --suite`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import lockstep
from lockstep import terminal
from lockstep.truth import suite
from scenarios import ScenarioError


def validate_suite(
    testbed: bool,
    limit: int | None,
    profile: Path | None,
    measured: Path | None,
    point: str | None,
    out: Path | None,
    json_: bool,
    quiet: bool,
    check_out: Callable[[Path | None], None],
) -> None:
    """Measure (or read what was measured), predict, and show how near that was; or print one point."""
    if point is not None:
        print(suite.chosen(point).yaml, end="")
        return
    if out is None:
        raise ScenarioError("missing; say where the suite's measurements and figures go", key="--out")
    check_out(out)
    still = quiet or json_
    if measured is None:
        first = suite.chosen("asynchronous-w1-s1-network-none").scenario
        lockstep.check(first, testbed)  # what this machine cannot do is said before anything is written

        def tell(line: str) -> None:
            print(line, file=sys.stderr, flush=True)

        suite.measure_first(out, testbed, limit, profile, None if still else tell)
        measured, limit = out, None
    elif testbed:
        raise ScenarioError("nothing is measured with --measured; leave it out", key="--testbed")
    source = suite.read(measured, profile, limit)
    with terminal.progress("predicting", still) as progress:
        summary = suite.recompute(source, out, progress)
    if json_:
        print(json.dumps(summary, allow_nan=False))
    else:
        terminal.show_accuracy(summary, out)
