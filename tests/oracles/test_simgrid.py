"""Our flows against SimGrid's, where SimGrid is installed. (Against our own plain solver: test_flows.py.)"""

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from lockstep.studies.verification import simgrid
from lockstep.studies.verification.simgrid import Case
from lockstep.studies.verification.simgrid_cases import (
    TOLERANCE,
    compare,
    difference,
    named,
    simulated,
)
from tests.support.nightly import examples

needs_simgrid = pytest.mark.skipif(simgrid.available() is not None, reason=simgrid.available() or "")


@pytest.mark.slow
@needs_simgrid
def test_named_topologies() -> None:
    comparisons = compare()
    assert [comparison.case for comparison in comparisons] == [case.name for case in named()]
    assert [comparison for comparison in comparisons if not comparison.difference <= TOLERANCE] == []


@st.composite
def anything(draw: st.DrawFn) -> Case:
    """Random paths over random links; instants on a grid meet, those off it do not."""
    capacity = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 10.0]), min_size=1, max_size=6))
    path = st.lists(st.integers(0, len(capacity) - 1), min_size=1, max_size=4, unique=True)
    start = st.one_of(st.integers(0, 8).map(float), st.floats(0, 8))
    flows = draw(st.lists(st.tuples(start, path, st.integers(1, 20)), min_size=1, max_size=20))
    return Case(f"{capacity} {flows}", capacity, flows)


@pytest.mark.slow
@needs_simgrid
def test_random_paths() -> None:
    """All examples first, then one run of SimGrid for all of them; so a failure is not shrunk."""
    cases: list[Case] = []

    @examples(3, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
    @given(anything())
    def collect(case: Case) -> None:
        cases.append(case)

    collect()
    assert len(cases) >= 80  # of 90 in CI, 300 at night
    assert [comparison for comparison in compare(cases) if not comparison.difference <= TOLERANCE] == []


@needs_simgrid
def test_the_comparison_can_fail() -> None:
    """A cable 0.001% narrower is seen."""
    case = next(case for case in named() if case.name == "fat tree, anyone to anyone")
    narrower = case._replace(capacity=[*case.capacity[:-1], case.capacity[-1] * 0.99999])
    assert difference(case, simulated(narrower), simgrid.run([case])[0]) > TOLERANCE


@needs_simgrid
def test_a_failure_says_what_simgrid_says() -> None:
    with pytest.raises(RuntimeError, match="SimGrid failed"):
        simgrid.run([Case("no such link", [1.0], [(0.0, [7], 1)])])


@pytest.fixture
def no_simgrid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simgrid, "python", lambda: None)


@pytest.mark.usefixtures("no_simgrid")
def test_its_absence_is_said() -> None:
    assert "python3-simgrid" in str(simgrid.available())
    with pytest.raises(RuntimeError, match="not installed"):
        compare()


@pytest.mark.slow
def test_the_named_cases_end_no_sooner_than_their_links_allow() -> None:
    for case in named():
        ends_at = simulated(case)
        for link, capacity in enumerate(case.capacity):
            crossing = [flow for flow in zip(case.flows, ends_at, strict=True) if link in flow[0][1]]
            if crossing:
                first = min(start for (start, _, _), _ in crossing)
                carried = sum(size for (_, _, size), _ in crossing)
                assert max(end for _, end in crossing) >= first + carried / capacity * (1 - 1e-9)
