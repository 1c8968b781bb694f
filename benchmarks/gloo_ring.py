"""Gloo's own all-reduce through cables with a delay, and what the simulator says of it.

Run: python benchmarks/gloo_ring.py, as root. Four hosts are network namespaces, whose TUN devices a process
of this script joins: what a host sends leaves at its bandwidth, and arrives a latency later. Packets to one
host and to another leave in turns ("fair"), or in the order in which they came ("fifo", as behind netem).
Prints a table; it is in benchmarks/RESULTS.md.
"""

import fcntl
import os
import select
import signal
import struct
import subprocess
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count

from lockstep.executor.namespaces import Namespace, in_a_thread, new_namespace

HOSTS, MTU = 4, 60_000
MIB = 32
CASES = [(80e6, 0.125), (80e6, 0.0625), (80e6, 0.002)]  # bit/s, s; a segment of 1 MiB takes 0.105 s
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000  # <linux/if_tun.h>


def address(host: int) -> str:
    return f"198.18.0.{host + 1}"


def new_host(host: int) -> tuple[Namespace, int]:
    """A namespace, and the other end of its only cable: packets are read and written there."""
    namespace = new_namespace()
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", b"cable", _IFF_TUN | _IFF_NO_PI))
    for command in (
        f"addr add {address(host)}/24 dev cable",
        f"link set cable up mtu {MTU} txqueuelen 10000",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    return namespace, tun


class Cables:
    """Carries packets from one TUN device to another."""

    def __init__(self, tuns: list[int], bandwidth: float, latency: float, fair: bool) -> None:
        self.tuns, self.byte_s, self.latency, self.fair = tuns, 8 / bandwidth, latency, fair
        self.waiting: list[dict[int, deque[tuple[int, bytes]]]] = [{} for _ in tuns]
        self.busy = [False] * len(tuns)
        self.events: list[tuple[float, int, bool, int, tuple[int, bytes]]] = []
        self.number = count()

    def carry(self) -> None:
        """For ever."""
        while True:
            wait = max(0.0, self.events[0][0] - time.monotonic()) if self.events else None
            for tun in select.select(self.tuns, [], [], wait)[0]:
                packet = os.read(tun, 1 << 16)
                if packet[0] >> 4 == 4:  # IPv6 has nothing to say here
                    host, to = self.tuns.index(tun), packet[19] - 1
                    self.waiting[host].setdefault(to if self.fair else 0, deque()).append((to, packet))
                    if not self.busy[host]:
                        self.next(host, time.monotonic())
            while self.events and self.events[0][0] <= time.monotonic():
                at, _, leaves, host, (to, packet) = heappop(self.events)
                if leaves:
                    heappush(self.events, (at + self.latency, next(self.number), False, host, (to, packet)))
                    self.next(host, at)
                else:
                    os.write(self.tuns[to], packet)

    def next(self, host: int, now: float) -> None:
        """Let the next packet of a host go, of that queue whose turn it is."""
        queues = self.waiting[host]
        self.busy[host] = bool(queues)
        if queues:
            turn = next(iter(queues))
            queue = queues.pop(turn)
            to, packet = queue.popleft()
            if queue:
                queues[turn] = queue  # behind the others
            left = now + len(packet) * self.byte_s
            heappush(self.events, (left, next(self.number), True, host, (to, packet)))


def measured(bandwidth: float, latency: float, fair: bool) -> float:
    """Seconds that the slowest host takes."""
    hosts = [in_a_thread(lambda host=host: new_host(host)) for host in range(HOSTS)]
    cables = os.fork()
    if not cables:
        Cables([tun for _, tun in hosts], bandwidth, latency, fair).carry()
    try:
        return all_reduce([namespace for namespace, _ in hosts])
    finally:
        os.kill(cables, signal.SIGKILL)
        os.waitpid(cables, 0)
        for namespace, tun in hosts:
            os.close(tun)
            namespace.close()


def all_reduce(namespaces: list[Namespace]) -> float:
    import torch
    import torch.distributed as dist

    store, together = dist.HashStore(), threading.Barrier(HOSTS)

    def host(rank: int) -> float:
        namespaces[rank].enter()
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address(rank))]
        group = dist.ProcessGroupGloo(store, rank, HOSTS, options)
        group.allreduce([torch.ones(2**21)]).wait()  # TCP's windows open
        tensor = torch.ones(MIB * 2**18)
        together.wait()
        begin = time.monotonic()
        group.allreduce([tensor]).wait()
        took = time.monotonic() - begin
        together.wait()
        return took

    with ThreadPoolExecutor(HOSTS) as threads:
        return max(threads.map(host, range(HOSTS)))


def predicted(bandwidth: float, latency: float, algorithm: str, tcp: bool = False) -> float:
    import lockstep

    network = {"bandwidth": f"{bandwidth} bit/s", "latency": f"{latency} s"}
    return lockstep.simulate(
        lockstep.Scenario.model_validate(
            {
                "name": "gloo-ring",
                "cluster": {
                    "workers": HOSTS,
                    "network": {
                        **network,
                        "tcp": {"initial_window": f"{10 * (MTU - 40)} B"} if tcp else None,
                    },
                    "compute": {"time": {"distribution": "constant", "value": "1 ns"}},
                },
                "workload": {"parameters": MIB * 2**18, "batch_size": 1},
                "strategy": {"name": "all-reduce", "algorithm": algorithm},
                "stop": {"steps": 1},
            }
        )
    ).metrics["duration_s"]


def main() -> None:
    print(
        "| bandwidth | latency | Gloo, fair | fifo | `gloo-ring`, tcp | `gloo-ring` | `nccl-ring` | `ring` |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for bandwidth, latency in CASES:
        real = [measured(bandwidth, latency, fair) for fair in (True, False)]
        said = [predicted(bandwidth, latency, "gloo-ring", tcp=True)]
        said += [predicted(bandwidth, latency, name) for name in ("gloo-ring", "nccl-ring", "ring")]
        cells = [f"{bandwidth / 1e6:g} Mbit/s", f"{latency * 1e3:g} ms", *(f"{s:.2f} s" for s in real + said)]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
