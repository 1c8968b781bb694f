"""A bottleneck in words: a sentence, the cell of a table, the end of a sentence."""

import re
from math import ceil

from lockstep.analysis.bottleneck import Bottleneck
from lockstep.analysis.words import NOTHING

_STANDS_OUT = 1.1  # times the median gradient: a worker slower than that is named
_MUCH = 0.2  # of the workers' time, that is said beside what takes more of it
_NAMES = {
    "computing": "computing",
    "updating": "own updates",
    "waiting": "waiting for others",
    "memory": "memory",
    "network": "the network",
    "latency": "latency and overheads",
}


def sentence(found: Bottleneck | None) -> str | None:
    """What limits a run, and what would move it elsewhere; None for nothing."""
    if found is None:
        return None
    if found.kind in ("link", "processor"):
        return f"{found.who}, {_busy(found)}{_shards(found)}"
    name, share = _NAMES[found.kind], f"{found.share:.0%} of their time"
    if found.kind == "waiting":
        return f"{name} {found.share:.0%}: {_who_is_slow(found)}"
    said = {
        "computing": f"workers compute {share}{_besides(found)}",
        "updating": f"workers step, sum and code {share}{_besides(found)}",
        "memory": f"workers read and add to what they share {share}",
        "network": f"workers wait for it {share}",
        "latency": f"{_unused(found)}, workers wait for the network {share}",
    }
    return f"{name}: {said[found.kind]}"


def in_short(found: Bottleneck | None) -> str:
    """As the cell of a table: "servers' down-links"; a dash for nothing."""
    if found is None:
        return NOTHING
    what = found.who.partition(" (")[0] if found.kind in ("link", "processor") else _NAMES[found.kind]
    return re.sub(r"up-link(s?) and down-links?", r"link\1", what.removeprefix("the "))


def bound_by(found: Bottleneck) -> str:
    """As the end of a sentence: "server 0's down-link (93% busy)"."""
    if found.kind in ("link", "processor"):
        return f"{found.who} ({_busy(found)})"
    more = f": {_who_is_slow(found)}" if found.kind == "waiting" else ""
    return f"{_NAMES[found.kind]} ({found.share:.0%} of the workers' time{more or _besides(found)})"


def _busy(found: Bottleneck) -> str:
    together = "together " if "up-link" in found.who and "down-link" in found.who else ""
    return f"{together}{found.share:.0%} busy"


def _shards(found: Bottleneck) -> str:
    if found.remedy is None:
        return ""
    shards, to = f"; {found.remedy.shards:,} shards", found.remedy.to
    return f"{shards} would spread it over all hosts" if to is None else f"{shards} would move it to {to}"


def _besides(found: Bottleneck) -> str:
    """What else takes much of the workers' time: nobody should think that only one thing does."""
    others = {"update": "update", "communicate": "communicate", "wait": "wait for others"}
    if found.kind == "updating":
        others = {"compute": "compute", **others}
        del others["update"]
    said = [
        f"{name} {found.worker[part]:.0%}" for part, name in others.items() if found.worker[part] >= _MUCH
    ]
    if not said:
        return ""
    slow = f": {_who_is_slow(found)}" if found.worker["wait"] >= _MUCH else ""
    return f", and {' and '.join(said)}{slow}"


def _who_is_slow(found: Bottleneck) -> str:
    if found.slowest_times < _STANDS_OUT:
        return "no worker stands out, their gradients take different times"
    return f"worker {found.slowest} is the slowest ({found.slowest_times:.1f} times the median gradient)"


def _unused(found: Bottleneck) -> str:
    which = " or ".join(found.busiest)
    return (
        f"no {which} over {ceil(100 * max(found.busiest.values()))}% busy"
        if which
        else "no bandwidth is limited"
    )
