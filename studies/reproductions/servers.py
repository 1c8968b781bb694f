"""Claims about what parameter servers and collectives ask of links."""

import numpy as np
import pandas as pd

import lockstep
from lockstep import Result
from lockstep.analysis.utilisation import busy_resources
from lockstep.scenarios import Scenario, override
from lockstep.studies.reproductions.claim import Check, Claim, Interval, Runs


def _messages(result: Result, kind: str) -> pd.DataFrame:
    records = result.records
    return records[(records["event"] == "message") & (records["kind"] == kind)]


def share_of_link(scenario: Scenario) -> dict[str, float]:
    """The rate at which a worker gets all parameters, ÷ that of its link; everybody pulls at once."""
    answers = _messages(lockstep.simulate(scenario), "parameters")
    pull = answers.groupby(["peer", answers.groupby(["node", "peer"]).cumcount()])
    rate = pull["nbytes"].sum() / (pull["end"].max() - pull["start"].min())
    return {"share": float(rate.mean()) / (scenario.cluster.network.bandwidth or 1.0)}


SHARDS = (1, 4, 8)


def _fan_out(runs: Runs) -> list[Check]:
    expected = {1: 1 / 8, 4: 1 / 2, 8: 1.0}
    return [
        Check(
            f"share of a link, 8 workers, {shards} shards",
            runs.mean(f"{shards} shards", "share"),
            0.98 * expected[shards],
            1.02 * expected[shards],
        )
        for shards in SHARDS
    ]


def traffic(scenario: Scenario) -> dict[str, float]:
    """A synchronous parameter server against a ring: bytes, parameters, use of links, seconds a round.

    The latter two come after the first pull, which a ring does not need.
    """
    server, ring = (
        lockstep.simulate(override(scenario, "strategy.name", n)) for n in ("synchronous", "all-reduce")
    )
    workers, pushed = scenario.cluster.workers, _messages(server, "push")["nbytes"]
    pulled = _messages(server, "parameters").query("start > 0")["nbytes"]
    rounds, nbytes = server.metrics["updates"], pushed.iloc[0]
    assert server.parameters is not None
    assert ring.parameters is not None
    difference = np.abs(server.parameters - ring.parameters).max() / np.abs(ring.parameters).max()
    return {
        "reduced": float(pushed.sum() / (rounds * workers * nbytes)),
        "broadcast": float(pulled.sum() / (rounds * workers * nbytes)),
        "difference": float(difference),
        "busy, server": _workers_links(server),
        "busy, ring": _workers_links(ring),
        "slower": _seconds_a_round(server) / _seconds_a_round(ring),
    }


def _workers_links(result: Result) -> float:
    return float(np.mean([part for id, part in busy_resources(result).items() if id.owner == "worker"]))


def _seconds_a_round(result: Result) -> float:
    records = result.records
    ends = records.loc[
        (records["event"] == "update") & (records["node"] == result.plan.owners.ranks[0]), "end"
    ].unique()
    return float((ends[-1] - ends[0]) / (len(ends) - 1))


def _reduce_then_broadcast(runs: Runs) -> list[Check]:
    def mean(metric: str) -> Interval:
        return runs.mean("8 workers", metric)

    return [
        Check("bytes to the server ÷ (n·M a round)", mean("reduced"), 0.99, 1.01),
        Check("bytes from it ÷ (n·M a round)", mean("broadcast"), 0.99, 1.01),
        Check("largest difference of a parameter to the ring's, relative", mean("difference"), below=1e-4),
        Check("workers' links busy, parameter server", mean("busy, server"), below=0.1),
        Check("workers' links busy, ring", mean("busy, ring"), above=0.95),
        Check("time of a round ÷ the ring's (n²/(n − 1) = 9.14)", mean("slower"), 9.0, 9.3),
    ]


def at_the_root(scenario: Scenario) -> dict[str, float]:
    """Bytes of pushes that reach the server for each mini-batch, and samples per second."""
    result = lockstep.simulate(scenario)
    metrics, pushes = result.metrics, _messages(result, "push")
    reached = pushes.loc[pushes["peer"] == result.plan.owners.ranks[0], "nbytes"].sum()
    return {
        "bytes": float(reached * scenario.workload.batch_size / metrics["samples"]),
        "samples per s": metrics["throughput"],
    }


def _hierarchy(runs: Runs) -> list[Check]:
    found = []
    for name, relief in (("synchronous", 7.9), ("asynchronous", 1.0)):
        flat, relays = (f"{name}, {shape}" for shape in ("flat", "relays"))
        less = Interval.of_ratio(runs[flat, "bytes"], runs[relays, "bytes"])
        more = Interval.of_ratio(runs[relays, "samples per s"], runs[flat, "samples per s"])
        found.append(Check(f"bytes to the root, flat ÷ 8 relays, {name}", less, above=relief))
        found.append(Check(f"samples/s, 8 relays ÷ flat, {name}", more, above=1.0))
    return found


CLAIMS = [
    Claim(
        name="fan-out",
        statement="Workers that pull at once get 1/N of the server's link each; N shards remove that.",
        source="Dean et al. 2012; Li et al. 2014",
        published="1/N, and the whole link",
        variants={f"{shards} shards": {"cluster.servers": shards} for shards in SHARDS},
        measure=share_of_link,
        checks=_fan_out,
    ),
    Claim(
        name="reduce-then-broadcast",
        statement="A parameter server's round is a reduction and a broadcast over its link; an all-reduce "
        "comes to the same parameters over everybody's.",
        source="Patarasuk and Yuan 2009; Li et al. 2014",
        published="2NM through the server, 2(N−1)/N·M through each link of a ring",
        variants={"8 workers": {}},
        measure=traffic,
        checks=_reduce_then_broadcast,
    ),
    Claim(
        name="hierarchy",
        statement="Servers in a tree relieve the root, and more workers can be fed.",
        source="Gupta, Zhang and Wang 2016 (Rudra-adv)",
        published="the root is no longer the bottleneck",
        variants={
            f"{name}, {shape}": {"strategy.name": name, "cluster.servers": servers}
            for name in ("synchronous", "asynchronous")
            for shape, servers in (("flat", 1), ("relays", {"count": 1, "hierarchy": {"groups": 8}}))
        },
        measure=at_the_root,
        checks=_hierarchy,
    ),
]
