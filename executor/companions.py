"""Whether the hosts of a run are all still there, where each has a torchrun of its own.

A torchrun ends the processes of its own host only: without this, those of the others would wait for ever for
messages from processes that are gone. So all look into the store for whether the run ends; one process of
each host tells there that its host is, and looks whether the others are.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from threading import Event, Thread

import torch.distributed as dist

_BEAT_S = 1.0
_LOST_S = 30.0  # without a sign of a host
_GRACE_S = 5.0  # for this process to hear that it is to end
_ENDING = "ending"  # the key of why the run ends badly


def tell(store: dist.Store, why: str) -> None:
    """Tell the other hosts that the run ends badly, unless somebody has."""
    with suppress(dist.DistError):  # the store is gone: they notice
        store.compare_set(_ENDING, "", why)


def watch(store: dist.Store, host: int, hosts: int, over: Event, *, leads: bool) -> None:
    """Until `over`, end this process soon after another host has gone, or has said that the run ends.

    `leads`: this process speaks for its host.
    """
    Thread(target=_watch, args=(store, host, hosts, over, leads), daemon=True).start()


def _watch(store: dist.Store, host: int, hosts: int, over: Event, leads: bool) -> None:
    keys = [f"here/{other}" for other in range(hosts)]
    seen, since = [0] * hosts, [time.monotonic()] * hosts
    while not over.wait(_BEAT_S):
        try:
            if leads:
                beats = [store.add(key, number == host) for number, key in enumerate(keys)]
                now = time.monotonic()
                for other in range(hosts):
                    if beats[other] != seen[other]:
                        since[other] = now
                    elif now - since[other] > _LOST_S:
                        tell(store, f"host {other} of {hosts} has not been heard of for {_LOST_S:.0f} s")
                seen = beats
            why = store.get(_ENDING).decode() if store.check([_ENDING]) else ""
        except dist.DistError:
            why = "the host on which the processes meet is gone"
        if why and not over.is_set():
            _end(why, over, leads)
            return


def _end(why: str, over: Event, says: bool) -> None:
    if says:
        print(f"error: the run ends: {why}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    if not over.wait(_GRACE_S):
        os._exit(128 + signal.SIGTERM)  # it waits where it hears no signal
