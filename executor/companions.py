"""Whether the hosts of a run are all still there, where each has a torchrun of its own.

A torchrun ends the processes of its own host only: without this, those of the others would wait for ever for
messages from processes that are gone. One process of each host tells the store that it is there, and looks
whether the others do; its own torchrun ends the rest of its host.
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


def watch(store: dist.Store, host: int, hosts: int, over: Event) -> None:
    """Until `over`, end this process soon after another host has gone, or has said that the run ends."""
    Thread(target=_watch, args=(store, host, hosts, over), daemon=True).start()


def _watch(store: dist.Store, host: int, hosts: int, over: Event) -> None:
    keys = [f"here/{other}" for other in range(hosts)]
    for key in keys:
        store.add(key, 0)
    seen, since = [b""] * hosts, [time.monotonic()] * hosts
    while not over.wait(_BEAT_S):
        try:
            store.add(keys[host], 1)
            beats, told = store.multi_get(keys), store.check([_ENDING])
            why = store.get(_ENDING).decode() if told else ""
        except dist.DistError:
            why, beats = "the host on which the processes meet is gone", seen
        now = time.monotonic()
        since = [now if beat != before else at for beat, before, at in zip(beats, seen, since, strict=True)]
        seen = list(beats)
        quiet = [other for other in range(hosts) if now - since[other] > _LOST_S]
        if quiet and not why:
            why = f"host {quiet[0]} of {hosts} has not been heard of for {_LOST_S:.0f} s"
            tell(store, why)
        if why and not over.is_set():
            _end(why, over)
            return


def _end(why: str, over: Event) -> None:
    print(f"error: the run ends: {why}", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    if not over.wait(_GRACE_S):
        os._exit(128 + signal.SIGTERM)  # it waits where it hears no signal
