"""Utilisation over time."""

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from lockstep.simulator.bucket import Bucket
from lockstep.simulator.flows import Flows
from lockstep.simulator.links import Link
from lockstep.simulator.usage import Usage
from lockstep.strategies.resource import ResourceId
from tests.support.nightly import examples


def run(sent, *, watched=True, changes=(), bucket=None):
    """(time at the end, ends, usage) of flows (at, bytes) over one link of 100 B/s, beside an idle one."""
    environment = simpy.Environment()
    flows, ends = Flows(environment), []
    link = Link(ResourceId("other", "link", 0), 100.0, bucket)
    usage = Usage(flows, [link, Link(ResourceId("other", "idle", 0), 1.0)], {}) if watched else None
    if usage:
        usage.add(ResourceId("processor", "server", 0, ""), lambda: environment.now / 4)
    events = [(at, flows.start, ((link,), size, lambda: ends.append(environment.now))) for at, size in sent]
    events += [(at, flows.set_capacity, (link, capacity)) for at, capacity in changes]

    def drive():
        for at, do, arguments in sorted(events, key=lambda event: event[0]):
            yield environment.timeout(max(0.0, at - environment.now))
            do(*arguments)

    environment.process(drive())
    environment.run()
    return environment.now, ends, usage


def test_bytes_and_busy_time_add_up() -> None:
    """1,000 flows of 50 bytes, one a second: half of the link's time, in every interval."""
    now, _, usage = run([(number, 50) for number in range(1000)])
    table = usage.until(now).frame()
    link = table[table["resource"] == "link 0"]
    assert 50 < len(link) <= 128
    assert link["bytes"].sum() == pytest.approx(50_000, rel=1e-9)
    assert (link["start"].to_numpy()[1:] == link["end"].to_numpy()[:-1]).all()
    assert link["start"].iloc[0] == 0
    assert link["end"].iloc[-1] == now
    rate = link["bytes"] / (link["end"] - link["start"])
    assert (rate / 100).to_numpy() == pytest.approx(link["busy"].to_numpy())
    long = link[link["end"] - link["start"] > 6]
    assert long["busy"].to_numpy() == pytest.approx(np.full(len(long), 0.5), abs=0.05)
    assert (table[table["resource"] == "idle 0"]["busy"] == 0).all()
    server = table[table["resource"] == "server 0"]
    assert server["busy"].to_numpy() == pytest.approx(np.full(len(server), 0.25))
    assert server["bytes"].isna().all()


def test_a_short_run_is_one_interval_or_a_few() -> None:
    now, _, usage = run([(0, 50)])
    table = usage.until(now).frame()
    assert table[table["resource"] == "link 0"][["start", "end", "bytes", "busy"]].to_numpy().tolist() == [
        [0.0, 0.5, 50.0, 1.0]
    ]


def test_busy_is_relative_to_the_capacity_there_was() -> None:
    """200 bytes: 100 in the first second, then 100 in two seconds at half the bandwidth; idle to 4 s."""
    now, _, usage = run([(0, 200), (3.99999, 0.0005)], changes=[(1, 50)])
    link = usage.until(now).frame().query("resource == 'link 0'")
    assert now == pytest.approx(4.0)
    offered = 100 + 3 * 50
    assert link["bytes"].sum() == pytest.approx(200.0005)
    total = (link["bytes"] / link["busy"]).sum()
    assert total == pytest.approx(offered)


def test_until_cuts_off_what_came_later() -> None:
    _, _, usage = run([(0, 100), (3, 100)])
    link = usage.until(0.5).frame().query("resource == 'link 0'")
    assert link[["start", "end", "bytes", "busy"]].to_numpy().tolist() == [[0.0, 0.5, 50.0, 1.0]]


def test_a_burst_is_more_than_the_capacity() -> None:
    now, _, usage = run([(0, 150)], bucket=Bucket(50.0, 150.0))
    assert usage.until(now).frame().query("resource == 'link 0'")["busy"].tolist() == [pytest.approx(1.5)]


@examples(0.5)
@given(st.lists(st.tuples(st.floats(0, 50), st.integers(1, 200)), min_size=1, max_size=60))
def test_watching_changes_nothing(sent) -> None:
    now, ends, usage = run(sent)
    assert run(sent, watched=False)[:2] == (now, ends)
    table = usage.until(now).frame()
    assert table.query("resource == 'link 0'")["bytes"].sum() == pytest.approx(sum(size for _, size in sent))
    assert (table["busy"] <= 1 + 1e-9).all()
