"""Runs flows in SimGrid: a program of its own, for a Python that has it (see simgrid.py, which starts it).

Standard input is JSON, a list of cases {"capacity": [bytes/s of each link], "flows": [[start in s, [links],
bytes], …]}; standard output is JSON, for each case the list of the seconds at which its flows end. Only the
standard library and SimGrid (3.32 or later; Casanova et al. 2014) are used.
"""

import json
import sys
from importlib import import_module
from typing import Any

# The plain max-min model: no slow start, no window (gamma), no acknowledgements on the way back
# (crosstraffic), no correction factors, nobody preferred (weight-S). The default precision, 1e-5 of a link's
# capacity, would be coarser than what is compared.
CONFIGURATION = (
    *("network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0", "network/weight-S:0"),
    *("network/bandwidth-factor:1", "network/latency-factor:1"),
    *("surf/precision:1e-12", "maxmin/precision:1e-12"),
)


def run(simgrid: Any, cases: list[dict[str, Any]]) -> list[list[float]]:
    """The seconds at which each case's flows end; the cases share nothing but the clock."""
    engine = simgrid.Engine(["simgrid", "--log=root.thresh:error", *(f"--cfg={c}" for c in CONFIGURATION)])
    root = simgrid.NetZone.create_full_zone("root")
    sent = []  # (start, case, flow's place, its two hosts, bytes)
    for case, work in enumerate(cases):
        hosts = platform(simgrid, root, case, work)
        for place, ((start, _, size), (source, target)) in enumerate(zip(work["flows"], hosts, strict=True)):
            sent.append((start, case, place, source, target, size))
    observer = root.create_host("observer", 1e9)
    root.seal()
    ends = [[0.0] * len(work["flows"]) for work in cases]

    def send() -> None:
        comms = []
        for start, case, place, source, target, size in sorted(sent, key=lambda flow: flow[:3]):
            if start > engine.clock:
                simgrid.this_actor.sleep_until(start)
            comms.append((case, place, simgrid.Comm.sendto_async(source, target, size)))
        simgrid.Comm.wait_all([comm for _, _, comm in comms])
        for case, place, comm in comms:
            ends[case][place] = comm.finish_time

    simgrid.Actor.create("sender", observer, send)
    engine.run()
    return ends


def platform(simgrid: Any, root: Any, case: int, work: dict[str, Any]) -> list[tuple[Any, Any]]:
    """A zone with a case's links, shared by all flows, and two hosts for each flow, joined by its path."""
    zone = simgrid.NetZone.create_full_zone(f"case {case}")
    zone.set_parent(root)
    links, hosts = [], []
    for number, capacity in enumerate(work["capacity"]):
        link = zone.create_link(f"link {case}-{number}", float(capacity)).set_latency(0.0)
        link.set_sharing_policy(simgrid.Link.SharingPolicy.SHARED, None)
        links.append(simgrid.LinkInRoute(link.seal()))
    for number, (_, path, _) in enumerate(work["flows"]):
        source, target = (zone.create_host(f"{end} {case}-{number}", 1e9) for end in ("from", "to"))
        zone.add_route(source.netpoint, target.netpoint, None, None, [links[link] for link in path], False)
        hosts.append((source, target))
    zone.seal()
    return hosts


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose simgrid.py is not SimGrid
    json.dump(run(import_module("simgrid"), json.load(sys.stdin)), sys.stdout)
