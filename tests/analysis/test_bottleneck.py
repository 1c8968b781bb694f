"""What limits a run, in words: sentences by hand, and whether "N shards would move it"."""

import re
from collections.abc import Callable
from dataclasses import asdict, replace
from math import nan
from typing import Any

import pandas as pd
import pytest

import lockstep
from lockstep.analysis import before
from lockstep.analysis.bottleneck import Bottleneck, Remedy
from lockstep.analysis.bottleneck_words import bound_by, in_short, sentence
from lockstep.analysis.records import Recorder
from lockstep.analysis.result import Result
from lockstep.analysis.utilisation import busy_resources, mean_busy
from lockstep.strategies.resource import ResourceId
from tests.support.results import result_of
from tests.support.scenarios import scenario


def table(busy: dict[str, float], end: float = 10.0) -> pd.DataFrame:
    """A utilisation of one interval."""
    rows = [(name, 0.0, end, share, nan) for name, share in busy.items()]
    table = pd.DataFrame(rows, columns=["resource", "start", "end", "busy", "bytes"])
    return before.with_identities(table)


def run(
    compute: float,
    communicate: float,
    busy: dict[str, float] | None,
    workers: int = 4,
    owners: Any = None,
    slow: float = 1.0,
    batches: int = 1,
) -> Result:
    """Ten seconds in which workers compute, then communicate for these fractions.

    The last worker computes `slow` times as long, and `batches` gradients in a row: the others wait for it.
    """

    def write(r: Recorder) -> None:
        for worker in range(workers):
            times, seconds = (batches, slow * compute) if worker == workers - 1 else (1, compute)
            for step in range(times):
                r.gradient(worker, 10 * seconds * step, 10 * seconds * (step + 1), step)
            end = 10 * seconds * times
            r.message(worker, workers, end, end + 10 * communicate, end + 10 * communicate, "push", 8)
        r.update(workers, 0, 10.0, 0, 0, 1)

    result = result_of(write, workers=workers, owners=owners)
    return replace(result, utilisation=None if busy is None else table(busy))


def bottleneck(result: Result) -> str | None:
    """What limits a run, in words."""
    return sentence(result.bottleneck)


CARDS = {"worker 0's up-link": 0.24, "worker 1's up-link": 0.24, "server 0's up-link": 0.97}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (run(0.93, 0.05, {"server 0's down-link": 0.3}), "computing: workers compute 93% of their time"),
        (
            run(0.31, 0.05, None, slow=3.0),
            "waiting for others 57%: worker 3 is the slowest (3.0 times the median gradient)",
        ),
        (
            run(0.3, 0.1, None, batches=3),
            "waiting for others 50%: no worker stands out, their gradients take different times",
        ),
        (
            run(0.6, 0.05, None, slow=1.5),
            "computing: workers compute 60% of their time, and wait for others 25%: worker 3 is the slowest "
            "(1.5 times the median gradient)",
        ),
        (
            run(0.05, 0.9, {**CARDS, "server 0's down-link": 0.96}),
            "server 0's up-link, 97% busy; 5 shards would move it to the workers' up-links",
        ),
        (
            run(0.2, 0.8, {"server 0's down-link": 0.97}),
            "server 0's down-link, 97% busy; 5 shards would move it to computing",
        ),
        (
            run(0.1, 0.9, {"server 0's down-link": 0.45, "server 0's up-link": 0.44}),
            "server 0's up-link and down-link, together 89% busy; 9 shards would move it to computing",
        ),
        (
            run(0.1, 0.1, {"server 0's down-link": 0.3, "server 0": 0.95}),
            "server 0's processor (applying updates), 95% busy; 10 shards would move it to computing",
        ),
        (
            run(0.1, 0.9, {"server 0's up-link": 0.9, "server 1's up-link": 0.9}, owners=[4, 5]),
            "the servers' up-links, 90% busy; 19 shards would move it to computing",
        ),
        (run(0.1, 0.9, {"rack 0's up-link": 0.5, "rack 1's up-link": 0.99}), "rack 1's up-link, 99% busy"),
        (
            run(0.1, 0.9, {f"worker {w}'s up-link": 0.8 for w in range(4)}, owners=range(4)),
            "the workers' up-links, 80% busy",
        ),
        (
            run(0.1, 0.9, {"the link from site 0 to site 1": 0.9, "the link from site 1 to site 0": 0.1}),
            "the link from site 0 to site 1, 90% busy",
        ),
        (
            run(0.3, 0.7, {"server 0's up-link": 0.035, "server 0's down-link": 0.035}),
            "latency and overheads: no link over 4% busy, workers wait for the network 70% of their time",
        ),
        (
            run(0.1, 0.9, {"relay 0": 0.6, "relay 1": 0.6, "relay 0's up-link": 0.1}),
            "the relays' processors (adding up updates), 60% busy",
        ),
        (
            run(0.1, 0.9, {"relay 0": 0.3, "server 0": 0.1, "relay 0's up-link": 0.1}),
            "latency and overheads: no link or processor over 30% busy, "
            "workers wait for the network 90% of their time",
        ),
        (
            run(0.3, 0.7, {"server 0": 0.1}),
            "latency and overheads: no processor over 10% busy, "
            "workers wait for the network 70% of their time",
        ),
        (
            run(0.3, 0.7, {}),
            "latency and overheads: no bandwidth is limited, workers wait for the network 70% of their time",
        ),
        (run(0.3, 0.7, None), "the network: workers wait for it 70% of their time"),
    ],
)  # fmt: skip
def test_sentences(result: Result, words: str) -> None:
    assert bottleneck(result) == words
    assert result.metrics["bottleneck"] == words
    assert Bottleneck.of_json(result.row["bottleneck_data"]) == result.bottleneck


def updating(compute: float, update: float, communicate: float) -> Result:
    """Ten seconds in which one worker computes, steps, and communicates for these fractions."""

    def write(r: Recorder) -> None:
        r.gradient(0, 0.0, 10 * compute, 0)
        r.work(0, 10 * compute, 10 * (compute + update), "apply")
        r.message(0, 1, 10 * (1 - communicate), 10.0, 10.0, "push", 8)
        r.update(1, 0, 10.0, 0, 0, 1)

    return replace(result_of(write, workers=1), utilisation=table({"server 0's down-link": 0.1}))


def test_own_updates_are_apart() -> None:
    found = updating(0.3, 0.45, 0.25).bottleneck
    assert found is not None
    assert (found.kind, found.who, found.share) == ("updating", None, pytest.approx(0.45))
    own = "own updates: workers step, sum and code 45% of their time"
    assert sentence(found) == f"{own}, and compute 30% and communicate 25%"
    assert in_short(found) == "own updates"


def test_who_computes_half_of_the_time_is_told_what_the_other_half_is() -> None:
    computes = updating(0.54, 0.0, 0.46)
    assert bottleneck(computes) == "computing: workers compute 54% of their time, and communicate 46%"


def test_the_values_beneath_the_words() -> None:
    found = run(0.2, 0.8, {"server 0's down-link": 0.97}).bottleneck
    assert found is not None
    assert (found.kind, found.who, found.share) == ("link", ResourceId("card", "server", 0, "down"), 0.97)
    assert found.remedy == Remedy(5, "computing")
    assert (in_short(found), bound_by(found)) == ("server 0's down-link", "server 0's down-link (97% busy)")
    waits = run(0.31, 0.05, None, slow=3.0).bottleneck
    assert waits is not None
    assert (waits.kind, waits.slowest, round(waits.slowest_times, 3)) == ("waiting", 3, 3.0)
    slow = "worker 3 is the slowest (3.0 times the median gradient)"
    assert bound_by(waits) == f"waiting for others (57% of the median worker's time: {slow})"
    assert bound_by(updating(0.9, 0, 0.1).bottleneck) == "computing (90% of the median worker's time)"


def test_a_run_that_did_nothing_has_none() -> None:
    result = result_of(lambda r: None)
    assert result.bottleneck is None
    assert result.metrics["bottleneck"] is None
    assert in_short(None) == "–"
    assert result.metrics["utilisation"] is None


@pytest.mark.parametrize(
    ("id", "name", "all"),
    [
        (("processor", "server", 0, ""), "server 0", "the servers' processors"),
        (("processor", "relay", 3, ""), "relay 3", "the relays' processors"),
        (("card", "worker", 3, "up"), "worker 3's up-link", "the workers' up-links"),
        (("card", "host", 3, "both"), "host 3's link", "the hosts' links"),
        (("inner", "host", 12, "both"), "host 12's inner link", "the hosts' inner links"),
        (("fabric", "rack", 1, "down"), "rack 1's down-link", "the racks' down-links"),
        (("fabric", "leaf", 0, "up", 1), "leaf 0's link up to spine 1", "the leaves' links up to spines"),
        (("fabric", "leaf", 2, "down", 0), "leaf 2's link down from spine 0",
         "the leaves' links down from spines"),
        (("fabric", "site", 0, "out", 1), "the link from site 0 to site 1", "the links between the sites"),
    ],
)  # fmt: skip
def test_names(id: Any, name: str, all: str) -> None:
    found = ResourceId(*id)
    assert (found.name, found.all.name) == (name, all)
    for each in (found, found.all):  # what a run of before has of it
        old = {"who": each.name, "remedy": {"shards": 2, "to": each.name}}
        assert before.with_fields(old)["who"] == asdict(each)
        assert before.with_fields(old)["remedy"]["to"] == asdict(each)


# --- whether the clause about shards is true ---------------------------------------------------------------


def on_a_star(**changes: Any) -> Result:
    """A simulated run with the mean utilisation of every card, from the bytes in its records."""
    result = lockstep.simulate(scenario(**changes))
    workers, (begin, end) = result.scenario.cluster.workers, result.span
    messages = result.records[result.records["event"] == "message"]
    messages = messages[(messages["end"] > begin) & (messages["start"] < end)]  # whole ones: good enough
    capacity = result.scenario.cluster.network.bandwidth * (end - begin)
    apart = not result.scenario.cluster.servers.colocated

    def host(rank: int) -> str:
        if apart:
            return f"worker {rank}" if rank < workers else f"server {rank - workers}"
        return f"host {rank % workers}"

    messages = messages[messages["node"].map(host) != messages["peer"].map(host)]
    busy: dict[str, float] = {}
    for column, direction in (("node", "up"), ("peer", "down")):
        carried = messages.groupby(messages[column].map(host))["nbytes"].sum() / capacity
        busy |= {f"{name}'s {direction}-link": min(1.0, share) for name, share in carried.items()}
    return replace(result, utilisation=table(busy, end))


def saturated(strategy: str, shards: Any, **changes: Any) -> Result:
    return on_a_star(
        cluster__workers=8,
        cluster__servers=shards,
        cluster__network={"bandwidth": "4 MB/s", "latency": "100 us"},
        workload__parameters=100_000,
        strategy=strategy,
        stop={"steps": 30},
        **changes,
    )


def moved(first: Callable[[Any], Result]) -> tuple[str, Any, Result]:
    """The direction of the server's card that limits a run; what more shards move it to; a run with them."""
    before = first(1)
    found = before.bottleneck
    assert found is not None
    assert found.who is not None
    assert (found.who.kind, found.who.owner, found.who.number) == ("card", "server", 0)
    assert found.remedy is not None
    assert found.remedy.to is not None
    after, fewer = first(found.remedy.shards), first(found.remedy.shards - 2).bottleneck
    assert fewer is not None
    assert fewer.who is not None
    assert fewer.who.owner == "server", fewer  # no more shards than it takes; with one fewer it may be a tie
    return found.who.direction, found.remedy.to, after


@pytest.mark.slow
def test_as_many_shards_move_it_to_the_workers_links() -> None:
    # Times of 20 ms that vary, so that pushes and pulls overlap; a gradient takes 100 ms to send.
    compute = {"time": {"distribution": "exponential", "mean": "20 ms"}}
    what, to, after = moved(lambda shards: saturated("asynchronous", shards, cluster__compute=compute))
    assert what in ("up", "down")
    assert to in [ResourceId("card", "worker", None, way) for way in ("up", "down")]
    busy = busy_resources(after)
    servers = max(share for id, share in busy.items() if id.owner == "server")
    assert max(share for id, share in busy.items() if id.all == to) > servers
    assert (bottleneck(after) or "").startswith("the workers'")


def test_directions_that_take_turns_are_named_together() -> None:
    # Equal constant times: all push together, then all pull; neither direction is busy for more than half.
    words = bottleneck(saturated("synchronous", 1)) or ""
    assert words.startswith("server 0's up-link and down-link, together 99% busy; 9 shards"), words


@pytest.mark.parametrize("strategy", ["asynchronous", "synchronous"])
def test_as_many_shards_move_it_to_computing(strategy: str) -> None:
    # 0.1 s to send a gradient, half a second to compute it: one shard's card is full with five workers.
    compute = {"time": {"distribution": "constant", "value": "250 ms"}}
    *_, to, after = moved(lambda shards: saturated(strategy, shards, cluster__compute=compute))
    assert to == "computing"
    assert (bottleneck(after) or "").startswith("computing: ")


@pytest.mark.parametrize("per_host", [1, 2])
def test_only_hosts_with_servers_are_named_and_more_shards_spread_it(per_host: int) -> None:
    def colocated(shards: int) -> str:
        cluster = {"servers": {"count": shards, "colocated": True}, "workers_per_host": per_host}
        result = lockstep.simulate(
            scenario(
                cluster__workers=8 * per_host,
                **{f"cluster__{key}": value for key, value in cluster.items()},
                cluster__network={"bandwidth": "4 MB/s", "latency": "100 us"},
                workload__parameters=100_000,
                strategy="asynchronous",
                stop={"steps": 10},
            )
        )
        return bottleneck(result) or ""

    busy, more = r"(up|down)-link[^;]*, (together )?\d+% busy", "; 8 shards would spread it over all hosts"
    assert re.fullmatch(rf"host 0's {busy}{more}", colocated(1))
    assert re.fullmatch(rf"the serving hosts' {busy.replace('link', 'links', 1)}{more}", colocated(2))
    assert re.fullmatch(r"the hosts' [^;]* busy", colocated(8))


def test_a_ring_has_no_shards() -> None:
    words = bottleneck(saturated("all-reduce", 1)) or ""
    assert re.match(r"the workers' .*-links?, (together )?\d+% busy$", words), words


def test_two_levels_wait_for_the_hosts_links_not_for_others() -> None:
    # Three of a host's four workers have no message under way while the hosts' first workers exchange theirs.
    result = lockstep.simulate(
        scenario(
            cluster__workers=8,
            cluster__workers_per_host=4,
            cluster__network={"bandwidth": "10 Gbit/s", "intra_host": {"bandwidth": "100 GB/s"}},
            cluster__compute={"time": {"distribution": "constant", "value": "100 ms"}},
            workload__parameters=250_000_000,
            strategy={"name": "all-reduce", "algorithm": "two-level"},
        )
    )
    assert re.match(r"the hosts' up-links, \d+% busy$", bottleneck(result) or "")
    assert result.metrics["breakdown"]["wait"] == pytest.approx(0, abs=1e-12)


def test_relays_that_add_up_are_named() -> None:
    result = lockstep.simulate(
        scenario(
            cluster__workers=16,
            cluster__servers={"count": 1, "hierarchy": {"groups": 2}},
            cluster__network={"bandwidth": "1 GB/s"},
            cluster__memory_bandwidth="200 MB/s",
            workload__parameters=1_000_000,
            strategy="synchronous",
        )
    )
    said = r"the relays' processors \(adding up updates\), \d+% busy"
    assert re.fullmatch(said, bottleneck(result) or ""), bottleneck(result)


# --- utilisation --------------------------------------------------------------------------------------------


def test_mean_utilisation_is_of_the_runs_duration() -> None:
    def write(r: Recorder) -> None:
        r.gradient(0, 2.0, 3.0, 0)
        r.update(2, 0, 6.0, 0, 0, 1)

    result = result_of(write)
    rows = [("a", 0.0, 4.0, 0.5, 8.0), ("a", 4.0, 8.0, 1.0, 8.0), ("b", 0.0, 2.0, 1.0, 8.0)]
    columns = ["resource", "start", "end", "busy", "bytes"]
    result = replace(result, utilisation=pd.DataFrame(rows, columns=columns))
    assert mean_busy(result) == {"a": 0.75, "b": 0.0}


def test_the_figures_have_the_64_busiest() -> None:
    busy = {f"worker {w}'s up-link": w / 100 for w in range(100)}
    assert list(run(0.5, 0.4, busy).metrics["utilisation"]) == list(busy)[36:]
    assert len(run(0.5, 0.4, dict(list(busy.items())[:64])).metrics["utilisation"]) == 64


def test_more_shards_do_not_help_where_every_update_costs_the_same() -> None:
    common = {"cluster__workers": 16, "cluster__apply_overhead": "2 ms", "stop": {"updates": 300}}
    one, four = (lockstep.simulate(scenario(cluster__servers=n, **common)).metrics for n in (1, 4))
    assert four["throughput"] == pytest.approx(one["throughput"], rel=0.02)
    assert re.fullmatch(r"server 0's processor \(applying updates\), 9\d% busy", one["bottleneck"])


def test_a_link_full_of_the_traffic_of_others_is_named_only_if_workers_wait_for_it() -> None:
    def named(parameters: int) -> str:
        network = {"bandwidth": "10 MB/s", "background": [{"from": 0, "to": 1}]}
        config = scenario(cluster__network=network, workload={"parameters": parameters})
        return lockstep.simulate(config).metrics["bottleneck"]

    assert named(10).startswith("computing: workers compute 100%")
    assert "link" in named(1_000_000)


@pytest.mark.parametrize(
    "cause",
    [
        {
            "cluster__faults": [{"worker": 1, "at": "1 s", "crash": True, "back_after": "5 s"}],
            "recovery": {"on_failure": "restart", "checkpoint": {"every": "1 updates"}},
        },
        {
            "cluster__storage": {"write": "1 kB/s"},
            "recovery": {"checkpoint": {"every": "1 updates"}},
        },
    ],
)
def test_failures_and_checkpoints_are_not_the_networks_fault(cause: dict[str, Any]) -> None:
    steady = {"time": {"distribution": "constant", "value": "100 ms"}}
    one = scenario(strategy="synchronous", stop={"steps": 20}, cluster__compute=steady, **cause)
    result = lockstep.simulate(one)
    assert str(result.metrics["bottleneck"]).startswith("failures and checkpoints: workers wait for them ")
    assert result.bottleneck is not None
    assert in_short(result.bottleneck) == "failures and checkpoints"
    assert result.metrics["breakdown"]["wait"] > 0.5
