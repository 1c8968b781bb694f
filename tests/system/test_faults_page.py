"""The committed campaign of runs with failures meets its bars, and the page has its figures."""

import re

import pandas as pd
import pytest

from tests.support import ROOT

TABLE = pd.read_csv(ROOT / "benchmarks" / "truth" / "failures" / "failures.csv")


@pytest.mark.parametrize("metric", ["goodput", "time_to_recover_s"])
def test_half_of_all_runs_are_within_five_percent_and_all_within_fifteen(metric: str) -> None:
    quiet = TABLE[~TABLE["disturbed"].astype(bool)]
    errors = (quiet[f"predicted {metric}"] / quiet[f"measured {metric}"] - 1).abs()
    assert len(errors) == 36
    assert errors.median() <= 0.05
    assert errors.max() <= 0.15


def test_the_page_has_the_errors_of_goodput() -> None:
    errors = TABLE["predicted goodput"] / TABLE["measured goodput"] - 1
    keys = zip(TABLE["where"], TABLE["strategy"], TABLE["fault"], strict=True)
    found = dict(zip(keys, (f"{error:+.1%}".replace("-", "−") for error in errors), strict=True))
    columns = [(where, fault) for where in ("loopback", "testbed") for fault in ("crash", "hang", "link")]
    page = (ROOT / "docs" / "faults.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\S+)` \| `\w+` \|((?: [+−]\d+\.\d% \|){6})$", page, re.MULTILINE)
    shown = {
        (where, strategy, fault): value
        for strategy, values in rows
        for (where, fault), value in zip(columns, values.replace("|", "").split(), strict=True)
    }
    assert shown == found
