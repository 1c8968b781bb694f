"""What would shorten a run: tried, against closed forms."""

import dataclasses
import json
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import lockstep
from lockstep.analysis.gains import Gain, lines, most
from lockstep.analysis.report import gather, pictures
from lockstep.commands.report import _tried
from lockstep.resources import FASTER, RESOURCES, experiments
from lockstep.scenarios import dump
from tests.support.command_line import Lockstep, fine
from tests.support.scenarios import scenario

SAVED = 1 - 1 / FASTER  # of what is a tenth faster
COMPUTE, MESSAGE, LATENCY = 0.01, 0.002, 0.003  # s: a gradient, 4 kB through a card, a message's way

MADE = {"samples": 640, "duration_s": 1.0}


def gains(**changes: Any) -> dict[str, float]:
    return {each.kind: each.gain for each in lockstep.why(scenario(**changes))}


def push_pull(**changes: Any) -> dict[str, Any]:
    """Four workers and a server, all alike: a round is a gradient, four pushes, an update and four pulls."""
    network = {"bandwidth": f"{4000 / MESSAGE} B/s", "latency": f"{LATENCY} s"}
    return {"cluster__network": network, "strategy": "synchronous", "stop": {"steps": 200}} | changes


@pytest.mark.slow
def test_the_gains_are_the_shares_of_what_comes_one_after_the_other() -> None:
    found = gains(**push_pull(cluster__apply_overhead="4 ms"))
    round_s = COMPUTE + 8 * MESSAGE + 2 * LATENCY + 0.004
    expected = {"computing": COMPUTE, "servers' links": 8 * MESSAGE, "latency": 2 * LATENCY}
    expected |= {"servers' updates": 0.004, "workers' links": 0.0, "own updates": 0.0}
    # the run ends with a push: of 200 rounds one pull is missing
    assert found == pytest.approx(
        {kind: SAVED * s / round_s for kind, s in expected.items()}, rel=0.01, abs=1e-12
    )
    assert sum(found.values()) == pytest.approx(SAVED, rel=1e-9)


def test_own_updates_and_overheads_of_a_ring() -> None:
    network = {"bandwidth": f"{4000 / MESSAGE} B/s", "message_overhead": "100 us"}
    found = gains(cluster__network=network, cluster__memory_bandwidth="1 MB/s", strategy="all-reduce")
    step, sums = 0.012, 3 * 0.003  # 3·4 kB; three times 3·1 kB; at 1 MB/s
    parts = {"own updates": step + sums, "workers' links": 6 / 4 * MESSAGE, "overheads": 6e-4}
    parts |= {"computing": COMPUTE}
    whole = sum(parts.values())
    assert found == pytest.approx({kind: SAVED * s / whole for kind, s in parts.items()})


def test_only_the_straggler_is_eased() -> None:
    slow = {"cluster__stragglers": [{"worker": 1, "slowdown": 3}]}
    found = gains(**slow, strategy="synchronous")
    assert found == pytest.approx({"computing": SAVED, "stragglers": SAVED})
    mild = {"cluster__stragglers": [{"worker": 1, "slowdown": 1.05}]}
    assert gains(**mild, strategy="synchronous")["stragglers"] == pytest.approx(1 - 1 / 1.05)


@pytest.mark.parametrize(
    "time",
    [
        {"distribution": "lognormal", "mean": "10 ms", "cv": 0.5},
        {"distribution": "empirical", "file": "times"},
    ],
)
def test_computing_is_faster_whatever_its_times_are(time: dict[str, Any], tmp_path: Path) -> None:
    if "file" in time:
        time["file"] = str(tmp_path / "times.csv")
        (tmp_path / "times.csv").write_text("0.01\n0.02\n0.05\n")
    found = gains(cluster__compute={"time": time}, strategy="synchronous")
    assert found == pytest.approx({"computing": SAVED})


@pytest.mark.parametrize(
    ("topology", "name"),
    [
        ({"kind": "racks", "hosts_per_rack": 2, "oversubscription": 20}, "the racks' links"),
        ({"kind": "fat-tree", "hosts_per_leaf": 2, "link": "100 kB/s"}, "the leaves' links"),
        ({"kind": "sites", "hosts": [2, 2], "bandwidth": "100 kB/s"}, "the links between the sites"),
    ],
)
def test_the_fabric_and_the_cards_are_apart(topology: dict[str, Any], name: str) -> None:
    network = {"bandwidth": "1 MB/s", "topology": topology}
    first, *others = lockstep.why(scenario(cluster__network=network, strategy="all-reduce"))
    assert (first.kind, first.who) == ("fabric", name)
    # a ring whose fabric is the narrowest leaves nothing to the cards
    assert {each.kind: each.gain for each in others}["workers' links"] == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
def test_servers_on_the_workers_hosts_have_no_links_of_their_own() -> None:
    servers = {"count": 4, "colocated": True}
    found = lockstep.why(scenario(**push_pull(cluster__servers=servers)))
    assert "servers' links" not in {each.kind for each in found}
    assert "the hosts' links" in {each.who for each in found}


@pytest.mark.parametrize("strategy", ["asynchronous", "downpour", "ad-psgd", "all-reduce"])
def test_all_resources_together_are_all_there_is(strategy: str) -> None:
    """With each a tenth faster, the same things happen in the same order, a tenth faster."""
    config = scenario(
        cluster__workers=6,
        cluster__workers_per_host=2,
        cluster__network={
            "bandwidth": "400 kB/s", "latency": "1 ms",
            "message_overhead": "200 us", "receive_overhead": "100 us",
            "intra_host": {"bandwidth": "1 MB/s", "latency": "10 us"}, "server_bandwidth": "900 kB/s",
            "cards": [{"hosts": [1, 3], "bandwidth": "300 kB/s"}],
            "topology": {"kind": "racks", "hosts_per_rack": 2, "oversubscription": 2, "latency": "300 us"},
        },
        cluster__compute={"time": {"distribution": "exponential", "mean": "10 ms"}},
        cluster__memory_bandwidth="10 MB/s",
        cluster__apply_overhead="1 ms",
        cluster__codecs={"int8": {"encode": "3 MB/s", "decode": "5 MB/s"}},
        strategy={"name": strategy, "codec": "int8"},
        stop={"steps": 40},
    )  # fmt: skip
    faster = config
    for kind, resource in RESOURCES.items():
        if kind != "stragglers":
            faster = resource.faster(faster, FASTER)
    before, after = (lockstep.simulate(each) for each in (config, faster))
    assert after.metrics["duration_s"] == pytest.approx(before.metrics["duration_s"] / FASTER)
    assert after.metrics["staleness"] == before.metrics["staleness"]
    assert after.metrics["bytes_sent"] == before.metrics["bytes_sent"]


def test_only_what_there_is_is_tried() -> None:
    assert set(experiments(scenario(strategy="all-reduce"), MADE)) == {"", "computing"}
    every = scenario(
        cluster__network={
            "bandwidth": "1 MB/s", "latency": "1 ms", "message_overhead": "1 us",
            "intra_host": {"bandwidth": "1 GB/s"},
            "topology": {"kind": "racks", "hosts_per_rack": 1, "uplink": "1 MB/s"},
        },
        cluster__workers_per_host=2,
        cluster__stragglers=[{"worker": 0, "slowdown": 2}],
        cluster__apply_overhead="1 ms",
    )  # fmt: skip
    assert set(experiments(every, MADE)) == {"", *RESOURCES}


def test_what_takes_most_of_the_time_need_not_be_what_holds_the_run_up() -> None:
    # Ten buckets, each ready 0.9 ms after the one before, in rings that take 1.4 ms each, one after the
    # other: the workers compute for 10 of 15.9 ms, but only the first 1.9 of them are not hidden.
    config = scenario(
        cluster__workers=2,
        cluster__network={"latency": "0.7 ms"},
        cluster__compute={"time": {"distribution": "constant", "value": "10 ms"}, "backward": 0.9},
        strategy={"name": "all-reduce", "buckets": 10},
    )
    estimate = lockstep.simulate(config).bottleneck
    assert estimate is not None
    assert (estimate.kind, round(estimate.share, 2)) == ("computing", 0.63)
    found = {each.kind: each.gain for each in lockstep.why(config)}
    assert found == pytest.approx({"latency": SAVED * 14 / 15.9, "computing": SAVED * 1.9 / 15.9})


@pytest.mark.slow
def test_the_command_shows_and_prints_it(command: Lockstep, sizes_only: Path) -> None:
    shown = fine(command("simulate", sizes_only, "--why", "--quiet"))
    assert "What a tenth more speed would save" in shown
    found = json.loads(fine(command("simulate", sizes_only, "--why", "--json")))
    assert [set(each) for each in found["why"]] == [{"kind", "who", "gain"}] * len(found["why"])
    plain = json.loads(fine(command("simulate", sizes_only, "--json")))
    assert {key: value for key, value in found.items() if key != "why"} == plain
    ended = command("simulate", "--replay", sizes_only.parent, "--why")
    assert ended.status == 2
    assert "--why" in ended.err


def test_a_servers_speed_is_of_its_updates_alone() -> None:
    slow, fast = (
        lockstep.simulate(scenario(**push_pull(cluster__apply_overhead="4 ms", cluster__servers=servers)))
        for servers in ({"count": 1, "speed": 1}, {"count": 1, "speed": 2})
    )
    saved = slow.metrics["duration_s"] - fast.metrics["duration_s"]
    assert saved == pytest.approx(200 * 0.002)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "sweep"])
def test_the_report_tries_the_best_point(
    command: Lockstep, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "_KINDS", {})
    base = scenario(**push_pull(stop={"steps": 20}))
    best = base
    file, out = tmp_path / "small.yaml", tmp_path / "out"
    if kind == "sweep":
        best = scenario(**push_pull(cluster__workers=8, stop={"steps": 20}))
        base = scenario(**push_pull(stop={"steps": 20}), sweep={"cluster.workers": [2, 8, 4]})
    file.write_text(dump(base))
    fine(command("sweep" if kind == "sweep" else "simulate", file, "--quiet", "--out", out))
    page = tmp_path / "page.html"
    fine(command("report", out, "--out", page))
    first, most = lockstep.why(best)[0], lockstep.what_if(best).most()
    assert most is not None
    assert most[1] > first.gain
    said = unescape(page.read_text())
    assert f"; {most[0]} would save {most[1]:.1%} of the time." in said
    assert f"<dt>the servers' links</dt><dd>{first.gain:.1%} less time</dd>" in said
    assert ("What a tenth more speed would save: synchronous with 8 workers" in said) == (kind == "sweep")
    fine(command("report", out, "--out", page, "--no-why"))
    assert "a tenth" not in page.read_text()
    assert "it is bound by" in page.read_text()


def test_a_real_run_is_not_tried_in_a_report(tmp_path: Path) -> None:
    run = lockstep.simulate(scenario())
    dataclasses.replace(run, engine="executor").save(tmp_path)
    assert _tried(gather(tmp_path)) == (None, None)


def test_what_would_save_nothing_is_said_in_a_line() -> None:
    found = [
        Gain("a", "this", 0.05),
        Gain("b", "that", 0.0002),
        Gain("c", "more", -0.0003),
        Gain("d", "x", -0.01),
    ]
    assert lines(found) == [("this", "5.0% less time"), ("x", "1.0% more time"), ("that, more", "nothing")]
    assert most(found) == "this, a tenth faster, would save 5.0% of the time"
    assert most(found[1:]) == "nothing that was made a tenth faster saved any time"
    assert most([]) is None
