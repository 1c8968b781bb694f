"""Bandwidth that varies, and traffic of others."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep
from lockstep.scenarios import ScenarioError
from lockstep.simulator.errors import SimulationError
from lockstep.strategies import STRATEGIES, Strategy
from lockstep.workloads import seeds
from tests.support.delivery import arrivals
from tests.support.scenarios import scenario

UP = "worker 0's up-link"


def changes(*steps: tuple[float, float]) -> list[dict[str, object]]:
    return [{"at": f"{at!r} s", "factor": factor} for at, factor in steps]


def varying(*steps: tuple[float, float], links: str = UP, **more: object) -> dict[str, object]:
    return {"links": links, "schedule": changes(*steps), **more}


def test_bytes_integrate_the_factor() -> None:
    """400 bytes at 100 B/s for 2 s, at 30 for 4 s, then at 200."""
    entry = varying((0, 1), (2, 0.3), (6, 2))
    assert arrivals([(0, 0, 1, 400)], varying=[entry]) == pytest.approx([6 + (400 - 200 - 120) / 100])
    cards = [{"hosts": [1], "bandwidth": "1 kB/s"}]  # else the other card holds it back
    assert arrivals([(0, 0, 1, 400)], varying=[entry], cards=cards) == pytest.approx([6 + 80 / 200])


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.1, 3)), min_size=1, max_size=6),
    st.integers(1, 3000),
    st.booleans(),
)
def test_any_schedule_is_integrated(spans: list[tuple[float, float]], nbytes: int, repeats: bool) -> None:
    """`spans` are (s, factor), one after another; the last factor stays, or all begin anew."""
    ends = np.cumsum([span for span, _ in spans]).tolist()
    steps = [(at, factor) for at, (_, factor) in zip([0.0, *ends], spans, strict=False)]
    entry = varying(*steps, **({"repeat": f"{ends[-1]!r} s"} if repeats else {}))
    left, now = float(nbytes), 0.0
    while left > 0:
        for number, (span, factor) in enumerate(spans):
            last = not repeats and number == len(spans) - 1
            takes = left / (100 * factor) if last else min(span, left / (100 * factor))
            now, left = now + takes, left - takes * 100 * factor
            if left <= 1e-9:
                left = 0
                break
    cards = [{"hosts": [1], "bandwidth": "1 kB/s"}]
    assert arrivals([(0, 0, 1, nbytes)], varying=[entry], cards=cards) == pytest.approx([now], rel=1e-9)


def test_the_factor_is_1_before_the_first_instant_of_every_turn() -> None:
    entry = varying((4, 0.5), repeat="8 s")
    assert arrivals([(0, 0, 1, 1000)], varying=[entry]) == pytest.approx([8 + 4])


def test_factors_of_patterns_that_name_the_same_link_multiply() -> None:
    entries = [varying((0, 0.5), links="worker 0's *"), varying((0, 0.2), links="*up-link")]
    sends = [(0, 0, 1, 100), (0, 2, 3, 100), (0, 4, 0, 5)]
    assert arrivals(sends, varying=entries) == pytest.approx([10, 5, 0.25])


def test_a_link_between_sites_varies_with_or_without_its_article() -> None:
    sites = {"kind": "sites", "hosts": [4, 4], "bandwidth": "10 B/s"}
    for links in ("link from site 0*", "the link from site 0 to site 1"):
        entry = varying((0, 0.5), links=links)
        assert arrivals([(0, 0, 4, 100), (0, 5, 1, 100)], topology=sites, varying=[entry]) == [20, 10]


def test_a_card_is_never_faster_than_its_line_rate() -> None:
    burst = {"size": "1 B", "line_rate": "200 B/s"}
    entry = varying((0, 50), links="*")
    assert arrivals([(0, 0, 1, 1000)], varying=[entry], burst=burst) == pytest.approx([5])


def test_a_trace_in_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("0, 0.5\n\n2,1.0\n")
    text = """
        cluster:
          workers: 1
          network:
            bandwidth: 400 B/s
            varying: [{links: "worker 0's *", file: trace.csv}]
          compute: {time: {distribution: constant, value: 0 s}}
        workload: {parameters: 300}
        strategy: asynchronous
        stop: {steps: 1}
    """
    (tmp_path / "traced.yaml").write_text(text)
    result = lockstep.simulate(lockstep.load(tmp_path / "traced.yaml"))
    messages = result.records[result.records["event"] == "message"]
    # 1,200 bytes: 400 in 2 s at half the rate, 800 in 2 s more; then all at the whole rate
    assert messages["end"].max() == pytest.approx(4 + 3 + 3)


@pytest.mark.parametrize("flows", [1, 3])
def test_a_greedy_flow_of_others_takes_its_share(flows: int) -> None:
    others = [{"from": 2, "to": 1, "flows": flows}]
    assert arrivals([(0, 0, 1, 1000)], background=others) == pytest.approx([10 * (1 + flows)])


def test_a_capped_flow_of_others_leaves_the_rest() -> None:
    others = [{"from": 2, "to": 1, "bandwidth": "20 B/s"}]
    assert arrivals([(0, 0, 1, 1000)], background=others) == pytest.approx([1000 / 80])
    assert arrivals([(0, 0, 1, 1000)], background=others, goodput=0.5) == pytest.approx([1000 / 40])


def test_others_without_a_link_to_share_do_no_harm() -> None:
    assert arrivals([(0, 0, 1, 1000)], background=[{"from": 2, "to": 1}], bandwidth=None) == [0.0]


def test_others_that_come_and_go_are_the_same_for_the_same_seed() -> None:
    others = [{"from": 2, "to": 1, "flows": 2, "on": "1 s", "off": "3 s"}]
    sends = [(2.0 * n, 0, 1, 100) for n in range(20)]
    once, again, other = (arrivals(sends, seed, background=others) for seed in (1, 1, 2))
    assert once == again != other
    assert sum(once) > sum(arrivals(sends))


def test_others_come_and_go_by_exponential_times() -> None:
    """Against the integral of the rate left by a source whose phases are drawn here from the same stream."""
    rng = seeds.generator(5, "background", 0, 0)
    on, left, now = rng.random() < 1 / 4, 10_000.0, 0.0
    while left > 0:
        phase, rate = rng.exponential(1 if on else 3), 50 if on else 100
        takes = min(phase, left / rate)
        on, left, now = not on, left - takes * rate, now + takes
        left = 0 if left < 1e-9 else left
    others = [{"from": 2, "to": 1, "on": "1 s", "off": "3 s"}]
    assert arrivals([(0, 0, 1, 10_000)], 5, background=others) == pytest.approx([now], rel=1e-9)


def test_a_source_is_on_for_its_share_of_the_time() -> None:
    """A link that it takes half of for a quarter of the time carries 7/8 of what it could.

    10,000 s have some 2,500 cycles; the fraction of time on then has a standard deviation below 1%, of
    which the rate feels half: four of them are 2%.
    """
    others = [{"from": 2, "to": 1, "on": "1 s", "off": "3 s"}]
    (time,) = arrivals([(0, 0, 1, 875_000)], 0, background=others)
    assert time == pytest.approx(10_000, rel=0.02)


BUSY = {
    "bandwidth": "1 MB/s",
    "background": [{"from": 0, "to": 1}, {"from": 1, "to": 2, "flows": 3, "on": "1 ms", "off": "2 ms"}],
    "varying": [varying((0, 1), (0.001, 0.5), links="*", repeat="2 ms")],
}


@pytest.mark.parametrize("strategy", ["synchronous", "asynchronous", "downpour", "all-reduce"])
def test_a_run_ends_whatever_goes_on_in_the_background(strategy: str) -> None:
    results = [
        lockstep.simulate(scenario(strategy=strategy, cluster__network=BUSY, workload={"parameters": 2500}))
        for _ in range(2)
    ]
    assert results[0].records.equals(results[1].records)
    assert results[0].metrics["updates"] > 0


def test_what_varies_goes_on_while_workers_only_compute() -> None:
    """Two workers share a core from 2 s to 10 s; at half the rate their pushes take 4 s."""
    run = lockstep.simulate(
        scenario(
            cluster__workers=2, cluster__workers_per_host=2, cluster__cores_per_host=1,
            cluster__compute={"time": {"distribution": "constant", "value": "4 s"}},
            cluster__network={"bandwidth": "400 B/s", "varying": [varying((0, 1), (5, 0.5), links="*")]},
            workload={"parameters": 100}, stop={"steps": 1},
        )
    )  # fmt: skip
    pushes = run.records[run.records["kind"] == "push"]
    assert pushes["start"].tolist() == pytest.approx([10, 10])
    assert pushes["end"].tolist() == pytest.approx([14, 14])


def test_the_background_hides_no_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    async def waits(node) -> None:
        await node.gradient(node.initial_parameters())
        await node.receive("an answer", sender=0)

    monkeypatch.setitem(STRATEGIES, "waiting", Strategy(waits))
    with pytest.raises(SimulationError, match="wait for each other for ever: rank 0 waits for an answer"):
        lockstep.simulate(scenario(strategy="waiting", cluster__network=BUSY))


def test_a_pattern_that_names_no_link_is_bad_input() -> None:
    network = {
        "bandwidth": "1 MB/s",
        "varying": [varying((0, 1)), varying((0, 1), links="worker 9's up-lnk")],
    }
    with pytest.raises(ScenarioError) as caught:
        lockstep.simulate(scenario(cluster__network=network))
    assert caught.value.key == "cluster.network.varying[1].links"
    assert "no link is called" in caught.value.problem
    assert """did you mean "worker""" in caught.value.problem
    with pytest.raises(ScenarioError, match="there is no link: bandwidths are unlimited"):
        lockstep.check(scenario(cluster__network={"varying": [varying((0, 1))]}))


@pytest.mark.slow
def test_the_command_line_blames_the_line(tmp_path: Path) -> None:
    change = "cluster.network.varying=[{links: 'x*', schedule: [{at: 0 s, factor: 2}]}]"
    code = "import sys; from lockstep.cli import main; main()"
    command = [sys.executable, "-c", code, "simulate", "quickstart", "--set", change]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "cluster.network.varying[0].links: no link is called 'x*'" in ended.stderr
    assert "Traceback" not in ended.stderr
