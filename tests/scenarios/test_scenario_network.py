"""Bad input to `cluster.network`: one message that names the key and says what would be valid."""
# ruff: noqa: E501  (a case is a line)

import re
import textwrap
from pathlib import Path

import pytest

import lockstep
from lockstep.scenarios import Network, ScenarioError, dump, load
from lockstep.schema import json_schema
from tests.support import ROOT

WHOLE = """\
name: whole
cluster:
  workers: 16
  workers_per_host: 2
  servers: {count: 2}
  network:
    bandwidth: 10 Gbit/s
    latency: 50 us
    message_overhead: 5 us
    receive_overhead: 5 us
    goodput: 0.95
    duplex: half
    burst: {size: 64 KiB, line_rate: 100 Gbit/s}
    queue: 32 KiB
    server_bandwidth: 40 Gbit/s
    cards: [{hosts: [3, 4], bandwidth: 1 Gbit/s}, {hosts: [9], bandwidth: 2 Gbit/s}]
    intra_host: {bandwidth: 100 Gbit/s, latency: 6 us}
    topology: {kind: sites, hosts: [4, 4], bandwidth: 1 Gbit/s, latency: 30 ms, pairs: [{between: [0, 1], latency: 80 ms}]}
    varying:
      - {links: "link from site 0*", schedule: [{at: 0 s, factor: 1}, {at: 10 s, factor: 0.3}], repeat: 20 s}
      - {links: "host 3's *", file: good.csv}
    background:
      - {from: 0, to: 5, bandwidth: 2 Gbit/s, flows: 3, on: 1 s, off: 4 s}
  compute: {time: {distribution: constant, value: 30 ms}}
workload: {parameters: 1000}
strategy: asynchronous
stop: {steps: 10}
"""
SITES = "{kind: sites, hosts: [4, 4], bandwidth: 1 Gbit/s, latency: 30 ms, pairs: [{between: [0, 1], latency: 80 ms}]}"
RACKS = "{kind: racks, hosts_per_rack: 4, oversubscription: 2}"
TREE = "{kind: fat-tree, hosts_per_leaf: 4, spines: 2, link: 1 Gbit/s}"
SCHEDULE = "[{at: 0 s, factor: 1}, {at: 10 s, factor: 0.3}]"

# what is replaced, by what; key below cluster.network, and what the message says
EDITS = [
    ("duplex: half", "duplex: simplex", "duplex", "must be 'full' or 'half', not 'simplex'"),
    ("receive_overhead: 5 us", "receive_overhead: 5", "receive_overhead", "5 has no unit; write a duration"),
    ("{size: 64 KiB, line_rate: 100 Gbit/s}", "64 KiB", "burst", "must be a mapping (keys: size, line_rate, train, first), not '64 KiB'"),
    ("size: 64 KiB, ", "", "burst.size", "missing; give a size with its unit, such as '64 KiB'"),
    ("size: 64 KiB", "size: 0 B", "burst.size", "must be above 0"),
    ("queue: 32 KiB", "queue: 32", "queue", "32 has no unit; write a size with its unit, such as '25 MB'"),
    ("queue: 32 KiB", "queue: -1 kB", "queue", "must be 0 or more"),
    ("queue: 32 KiB", "tcp: {}", "burst", "does not go with tcp, whose window says what is under way; leave burst out"),
    ("burst: {size: 64 KiB, line_rate: 100 Gbit/s}", "tcp: {}", "queue", "does not go with tcp"),
    ("queue: 32 KiB", "tcp: {window: 1 kB}", "tcp.initial_window", "must be at most window (1000.0 B), not 14480.0 B"),
    ("queue: 32 KiB", "tcp: {windows: 1 kB}", "tcp.windows", "did you mean 'window'?"),
    ("line_rate: 100 Gbit/s", "line_rate: 20 Gbit/s", "burst.line_rate", "must be at least server_bandwidth (5000000000.0 B/s)"),
    ("bandwidth: 10 Gbit/s\n    latency", "latency", "burst", "needs the cards' bandwidth; give cluster.network.bandwidth"),
    ("hosts: [3, 4]", "hosts: []", "cards[0].hosts", "must have at least one item"),
    ("hosts: [3, 4]", "hosts: 3", "cards[0].hosts", "must be a list, not 3"),
    ("hosts: [3, 4]", "hosts: [3, -4]", "cards[0].hosts[1]", "must be at least 0, not -4"),
    ("hosts: [3, 4]", "hosts: [3, true]", "cards[0].hosts[1]", "must be a whole number, not true"),
    ("hosts: [3, 4]", "hosts: [3, 10]", "cards[0].hosts[1]", "must be a host's number, from 0 to 9, not 10"),
    ("hosts: [9]", "hosts: [3]", "cards[1].hosts[0]", "host 3 has two cards; keep one"),
    (", bandwidth: 1 Gbit/s}, {", "}, {", "cards[0].bandwidth", "missing; give a bandwidth with its unit"),
    ("{bandwidth: 100 Gbit/s, latency: 6 us}", "{speed: 100 Gbit/s}", "intra_host.speed", "unknown key (valid: bandwidth, latency)"),
    (SITES, "ring", "topology", "'ring' is not a topology (valid: fat-tree, racks, sites, star)"),
    (SITES, "{kind: rack}", "topology.kind", "did you mean 'racks'?"),
    (SITES, "{hosts: [4, 4]}", "topology.kind", "null is not a topology (valid: fat-tree"),
    (SITES, "8", "topology", "must be star, or such as {kind: racks, hosts_per_rack: 8}, not 8"),
    (SITES, "racks", "topology", "must be a mapping (keys: kind, hosts_per_rack, oversubscription, uplink, latency), not 'racks'"),
    (SITES, "{kind: star, spines: 2}", "topology.spines", "unknown key (valid: kind)"),
    (SITES, "{kind: racks}", "topology.hosts_per_rack", "missing; give how many hosts a rack has, such as 'hosts_per_rack: 8'"),
    (SITES, RACKS.replace("4", "0"), "topology.hosts_per_rack", "must be at least 1, not 0"),
    (SITES, RACKS.replace("2}", "0}"), "topology.oversubscription", "must be at least 0.000001, not 0"),
    (SITES, RACKS.replace("2}", "2, uplink: 1 Gbit/s}"), "topology.uplink", "give either oversubscription or uplink, not both"),
    (SITES, TREE.replace("spines: 2", "spines: 0"), "topology.spines", "must be at least 1, not 0"),
    (SITES, TREE.replace("spines: 2", "spines: 1e9"), "topology.spines", "must be"),
    (SITES, TREE.replace("hosts_per_leaf: 4, ", ""), "topology.hosts_per_leaf", "missing; give how many hosts a leaf has"),
    ("hosts: [4, 4]", "hosts: [4, 5]", "topology.hosts", "must add up to the 8 workers' hosts, not to 9"),
    ("hosts: [4, 4]", "hosts: [8, 0]", "topology.hosts[1]", "must be at least 1, not 0"),
    ("hosts: [4, 4]", "hosts: []", "topology.hosts", "must have at least one item"),
    ("between: [0, 1]", "between: [0, 2]", "topology.pairs[0].between[1]", "must be from 0 to 1, the last site, not 2"),
    ("between: [0, 1]", "between: [0]", "topology.pairs[0].between", "must be two different sites, such as [0, 1], not [0]"),
    ("between: [0, 1]", "between: [1, 1]", "topology.pairs[0].between", "must be two different sites"),
    ("80 ms}]", "80 ms}, {between: [1, 0]}]", "topology.pairs[1].between", "the pair [1, 0] is listed twice; keep one"),
    ('links: "link from site 0*", ', "", "varying[0].links", """missing; give a pattern of links' names, such as "worker 3's *\""""),
    ("schedule: " + SCHEDULE + ", ", "", "varying[0]", "give exactly one of schedule ([{at: 0 s, factor: 1}"),
    ("repeat: 20 s", "repeat: 20 s, file: good.csv", "varying[0]", "give exactly one of schedule"),
    (SCHEDULE, "[]", "varying[0].schedule", "must have at least one item"),
    ("at: 10 s", "at: 0 s", "varying[0].schedule[1].at", "must be later than 0.0 s, not 0.0 s"),
    ("factor: 0.3", "factor: 0", "varying[0].schedule[1].factor", "must be at least"),
    ("repeat: 20 s", "repeat: 10 s", "varying[0].repeat", "must be longer than the last instant (10.0 s), not 10.0 s"),
    ("file: good.csv", "file: no.csv", "varying[1].file", "cannot read 'no.csv'; give a text file of seconds and factors, one per line"),
    ("file: good.csv", "file: bad.csv", "varying[1].file", "line 2 of the file is '1 2'; must be seconds, a comma and a factor"),
    ("file: good.csv", "file: zero.csv", "varying[1].file", "line 1 of the file is '0, 0'"),
    ("file: good.csv", "file: back.csv", "varying[1].file", "the file's instants must rise, but 1.0 s follows 2.0 s"),
    ("file: good.csv", "file: good.csv, repeat: 4 s", "varying[1].repeat", "must be longer than the last instant (5.0 s)"),
    ("from: 0, ", "", "background[0].from", "missing; give a host's number, such as 'from: 0'"),
    ("from: 0", "source: 0", "background[0].source", "unknown key"),
    ("to: 5", "to: 0", "background[0].to", "must be another host than 0, where it comes from"),
    ("to: 5", "to: 10", "background[0].to", "must be a host's number, from 0 to 9, not 10"),
    ("from: 0", "from: 16", "background[0].from", "must be a host's number, from 0 to 9, not 16"),
    ("flows: 3", "flows: 0", "background[0].flows", "must be at least 1, not 0"),
    (", off: 4 s", "", "background[0].off", "on and off go together; give off too, such as 'off: 3 s'"),
    ("on: 1 s", "on: 0 s", "background[0].on", "must be above 0"),
]  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "good.csv").write_text("0, 1\n5, 0.5\n")
    (tmp_path / "bad.csv").write_text("0, 1\n1 2\n")
    (tmp_path / "zero.csv").write_text("0, 0\n")
    (tmp_path / "back.csv").write_text("2, 1\n1, 1\n")
    (tmp_path / "whole.yaml").write_text(WHOLE)
    return tmp_path / "whole.yaml"


@pytest.mark.parametrize(("old", "new", "key", "says"), EDITS)
def test_a_broken_network(file: Path, old: str, new: str, key: str, says: str) -> None:
    assert WHOLE.count(old) == 1
    file.write_text(WHOLE.replace(old, new))
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert caught.value.key == f"cluster.network.{key}"
    assert says in caught.value.problem
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("shape", [SITES, RACKS, TREE, "star", "{kind: star}"])
def test_what_is_dumped_is_read_back(file: Path, shape: str) -> None:
    text = WHOLE.replace(SITES, shape)
    file.write_text(text)
    scenario = load(file)
    file.write_text(dump(scenario))
    assert load(file) == scenario


def test_oversubscription_needs_a_bandwidth(file: Path) -> None:
    change = "cluster.network={topology: {kind: racks, hosts_per_rack: 4, oversubscription: 2}}"
    with pytest.raises(ScenarioError, match=r"give cluster\.network\.bandwidth, or uplink instead"):
        load(file, [change])


def test_a_place_is_a_group(file: Path) -> None:
    assert load(file, ["cluster.servers.places=[1, 1]"]).cluster.server_groups == (1, 1)
    with pytest.raises(ScenarioError, match=r"places\[1\]: must be a rack, leaf or site, from 0 to 1, not 2"):
        load(file, ["cluster.servers.places=[0, 2]"])


def test_a_key_below_a_short_topology_can_be_set(file: Path) -> None:
    file.write_text(WHOLE.replace(SITES, "star"))
    changes = ["cluster.network.topology.kind=racks", "cluster.network.topology.hosts_per_rack=4"]
    with pytest.raises(ScenarioError, match="missing; give how many hosts a rack has"):
        load(file, changes[:1])
    assert load(file, changes).cluster.group_of(15) == 1


def test_the_schema_says_from() -> None:
    background = json_schema()["$defs"]["Background"]
    assert background["required"] == ["from", "to"]
    assert "such as" in background["properties"]["from"]["description"]


def test_the_documentation_s_examples_are_scenarios(file: Path) -> None:
    text = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    section = text.partition("\n## Network\n")[2].partition("\n## ")[0]
    cluster, *networks = re.findall(r"^```yaml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    (file.parent / "trace.csv").write_text("0, 1\n5, 0.5\n")
    rest = WHOLE.partition("  compute:")
    described = set()
    for network in networks:
        file.write_text("name: x\ncluster:\n" + textwrap.indent(cluster + network, "  ") + rest[1] + rest[2])
        scenario = lockstep.load(file)  # patterns name links too
        described |= scenario.cluster.network.model_fields_set
    assert described == set(Network.model_fields)
