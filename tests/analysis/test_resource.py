"""Links and processors are told by their fields; nobody reads what people call them."""

import json
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lockstep
from lockstep.analysis import before, plots, saved
from lockstep.analysis.bottleneck import Bottleneck, Remedy
from lockstep.analysis.bottleneck_words import bound_by, in_short, sentence
from lockstep.analysis.timeline import write
from lockstep.analysis.utilisation import busy_resources
from lockstep.scenarios import ScenarioError
from lockstep.simulator.topology import topology
from lockstep.strategies.resource import FIELDS, ResourceId
from lockstep.studies.accuracy_suite.digest import digest
from lockstep.studies.reproductions.servers import _workers_links
from tests.support.scenarios import scenario

INNER = {"intra_host": {"bandwidth": "1 GB/s"}}
NETWORKS: dict[str, Any] = {
    "star": {},
    "half": {"duplex": "half", **INNER},
    "inner": INNER,
    "racks": {"topology": {"kind": "racks", "hosts_per_rack": 2, "uplink": "50 MB/s"}},
    "tree": {"topology": {"kind": "fat-tree", "hosts_per_leaf": 2, "spines": 2, "link": "50 MB/s"}},
    "sites": {"topology": {"kind": "sites", "hosts": [2, 2], "bandwidth": "10 MB/s", "latency": "3 ms"}},
}  # fmt: skip
SERVERS: dict[str, Any] = {
    "own": {"count": 2},
    "colocated": {"count": 2, "colocated": True},
    "hierarchy": {"count": 1, "hierarchy": {"groups": 2}},
}


def cluster(network: str, servers: str = "own") -> dict[str, Any]:
    return {
        "cluster__workers": 4,
        "cluster__servers": SERVERS[servers],
        "cluster__network": {"bandwidth": "100 MB/s", **NETWORKS[network]},
        "cluster__memory_bandwidth": "1 GB/s",
        "workload__parameters": 1_000_000,
    }


def simulated(network: str = "star", **changes: Any) -> lockstep.Result:
    return lockstep.simulate(scenario(**cluster(network), **changes))


@pytest.mark.parametrize("servers", SERVERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_link_has_a_kind_an_owner_and_a_direction(network: str, servers: str) -> None:
    links = topology(scenario(**cluster(network, servers)).cluster).links
    ids = [link.id for link in links]
    assert len(set(ids)) == len({id.name for id in ids}) == len(links) > 0
    for id in ids:
        assert id.kind in ("card", "inner", "fabric")
        assert id.owner in ("worker", "server", "relay", "host", "rack", "leaf", "site")
        assert id.number is not None
        assert (id.other >= 0) == (id.owner in ("leaf", "site"))
        assert id.direction in ("up", "down", "out", "both")
        if id.direction in ("up", "down"):
            opposite = {"up": "down", "down": "up"}[id.direction]
            assert id.towards(opposite) in ids  # type: ignore[arg-type]


def test_the_table_says_what_each_resource_is() -> None:
    result = simulated("tree")
    links = topology(result.scenario.cluster).links
    processors = [ResourceId("processor", "server", number, "") for number in range(2)]
    assert list(busy_resources(result)) == [*(link.id for link in links), *processors]
    assert {id.name: share for id, share in busy_resources(result).items()} == result.busy


def fields(found: Bottleneck | None) -> dict[str, Any]:
    assert found is not None
    return asdict(found)


def rename(patch: pytest.MonkeyPatch) -> None:
    """Give everything names that say nothing, and none like another's."""

    def opaque(what: str) -> property:
        return property(lambda self: sha256(f"{what}{self!r}".encode()).hexdigest()[:12])

    for what in ("name", "noun", "whose", "the"):
        patch.setattr(ResourceId, what, opaque(what))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("strategy", ["asynchronous", "synchronous"])
def test_a_bottleneck_survives_other_names(strategy: str, network: str) -> None:
    usual = simulated(network, strategy=strategy)
    said, shares = sentence(usual.bottleneck), busy_resources(usual)
    with pytest.MonkeyPatch.context() as patch:
        rename(patch)
        renamed = simulated(network, strategy=strategy)
        assert fields(renamed.bottleneck) == fields(usual.bottleneck)
        assert renamed.bottleneck is not None
        assert renamed.bottleneck.kind == "link"
        assert sentence(renamed.bottleneck) != said
        assert busy_resources(renamed) == shares
        assert not {*(renamed.busy or {})} & {*(usual.busy or {})}
        links = [id for id in shares if id.kind != "processor"]
        assert digest(renamed)["busiest_link"] == max(links, key=lambda id: shares[id]).name
    columns = [*FIELDS, "start", "end", "bytes", "busy"]
    assert usual.utilisation is not None
    pd.testing.assert_frame_equal(renamed.utilisation[columns], usual.utilisation[columns])


@pytest.mark.slow
def test_figures_timelines_and_claims_survive_other_names(tmp_path: Path, monkeypatch: Any) -> None:
    usual = simulated("inner")
    drawn = len(plots.gantt([usual]).axes[0].patches)
    carries = _workers_links(usual)
    write([usual], tmp_path / "usual.json")
    rename(monkeypatch)
    renamed = simulated("inner")
    assert len(plots.gantt([renamed]).axes[0].patches) == drawn
    assert plots.link_utilisation([renamed]).axes
    assert _workers_links(renamed) == carries
    write([renamed], tmp_path / "renamed.json")
    slices = []
    for which in ("usual", "renamed"):
        events = json.loads((tmp_path / f"{which}.json").read_text())["traceEvents"]
        drawn_there = [event for event in events if event["ph"] == "X"]
        slices.append([[event[key] for key in ("tid", "ts", "dur")] for event in drawn_there])
    assert slices[0] == slices[1] != []


# --- what earlier versions saved ----------------------------------------------------------------------------


@pytest.mark.parametrize("network", NETWORKS)
def test_a_run_of_before_is_loaded_with_fields(network: str, tmp_path: Path) -> None:
    result = simulated(network)
    assert result.utilisation is not None
    result.save(tmp_path)
    old = result.utilisation.drop(columns=list(FIELDS))
    old.to_parquet(tmp_path / "utilisation.parquet", index=False)
    loaded = saved.load(tmp_path)
    assert busy_resources(loaded) == busy_resources(result)
    assert loaded.bottleneck == result.bottleneck
    assert plots.link_utilisation([loaded]).axes


def test_a_run_with_names_that_nobody_has_given_is_refused(tmp_path: Path) -> None:
    result = simulated()
    assert result.utilisation is not None
    result.save(tmp_path)
    old = result.utilisation.drop(columns=list(FIELDS)).assign(resource="the backbone")
    old.to_parquet(tmp_path / "utilisation.parquet", index=False)
    with pytest.raises(ScenarioError, match="'the backbone' is no link or processor"):
        saved.load(tmp_path)


SERVER, HOSTS = ResourceId("card", "server", 0, "up"), ResourceId("card", "host", None, "up")
LEAF = ResourceId("fabric", "leaf", None, "down")
WORKER = {"compute": 0.1, "update": 0.0, "communicate": 0.9, "wait": 0.0}


@pytest.mark.parametrize(
    ("old", "found"),
    [
        ("server 0's up-link", Bottleneck("link", SERVER, 0.9, Remedy(5, "updating"), WORKER)),
        (
            "server 0's up-link and down-link",
            Bottleneck("link", SERVER, 0.9, Remedy(5, HOSTS), WORKER, together=True),
        ),
        (
            "the serving hosts' up-links and down-links",
            Bottleneck("link", HOSTS, 0.9, Remedy(8, None), WORKER, together=True, serving=True),
        ),
        ("the leaves' links down from spines", Bottleneck("link", LEAF, 0.9, None, WORKER)),
        (
            "the relays' processors (adding up updates)",
            Bottleneck("processor", ResourceId("processor", "relay", None, ""), 0.9, None, WORKER),
        ),
        (
            "server 1's processor (applying updates)",
            Bottleneck("processor", ResourceId("processor", "server", 1, ""), 0.9, None, WORKER),
        ),
        (
            "the links between the sites",
            Bottleneck("link", ResourceId("fabric", "site", None, "out"), 0.9, None, WORKER),
        ),
        ("workers", Bottleneck("computing", None, 0.9, None, WORKER)),
    ],
)  # fmt: skip
def test_a_bottleneck_of_before_says_the_same(old: str, found: Bottleneck) -> None:
    text = json.loads(found.to_json())
    del text["together"], text["serving"]
    remedy = {"updating": "own updates"}
    to = found.remedy and found.remedy.to
    if text["remedy"]:
        text["remedy"]["to"] = to.name if isinstance(to, ResourceId) else remedy.get(to or "")
    assert Bottleneck.of_json(json.dumps({**text, "who": old})) == found
    assert Bottleneck.of_json(found.to_json()) == found
    if found.who is not None:
        assert (sentence(found) or "").startswith(f"{old}, ")
        assert bound_by(found).startswith(f"{old} (")


@pytest.mark.parametrize(
    ("who", "more", "short", "whole"),
    [
        (SERVER, {}, "server 0's up-link", "server 0's up-link, 90% busy"),
        (SERVER, {"together": True}, "server 0's link",
         "server 0's up-link and down-link, together 90% busy"),
        (HOSTS, {"serving": True}, "serving hosts' up-links", "the serving hosts' up-links, 90% busy"),
        (HOSTS, {"serving": True, "together": True}, "serving hosts' links",
         "the serving hosts' up-links and down-links, together 90% busy"),
        (ResourceId("fabric", "leaf", 0, "up", 1), {"together": True}, "leaf 0's link to spine 1",
         "leaf 0's link up to spine 1 and link down from spine 1, together 90% busy"),
        (ResourceId("fabric", "site", 0, "out", 1), {}, "link from site 0 to site 1",
         "the link from site 0 to site 1, 90% busy"),
        (ResourceId("fabric", "site", None, "out"), {}, "links between the sites",
         "the links between the sites, 90% busy"),
    ],
)  # fmt: skip
def test_words(who: ResourceId, more: Any, short: str, whole: str) -> None:
    found = Bottleneck("link", who, 0.9, None, WORKER, **more)
    assert (in_short(found), sentence(found)) == (short, whole)


def test_a_table_that_has_its_fields_is_left_alone() -> None:
    table = simulated().utilisation
    assert table is not None
    assert before.with_identities(table) is table


def test_arrays_say_what_their_table_says(tmp_path: Path) -> None:
    """To the last bit, which decides who is named of two that are equally busy: in the order of pandas."""
    made = lockstep.simulate(lockstep.load("sizes-only"))
    arrays = made.busy
    assert arrays == replace(made, utilisation=made.utilisation, records=made.records).busy
    assert made.utilisation is not None
    within = np.minimum(made.utilisation["end"], made.span[1]) - np.maximum(
        made.utilisation["start"], made.span[0]
    )
    busy = (made.utilisation["busy"] * np.maximum(within, 0)).groupby(made.utilisation["resource"]).sum()
    assert arrays == (busy / (made.span[1] - made.span[0])).clip(0, 1).to_dict()
