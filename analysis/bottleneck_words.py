"""A bottleneck in words: a sentence, the cell of a table, the end of a sentence."""

from math import ceil

from lockstep.analysis.bottleneck import STANDS_OUT, Bottleneck, Remedy
from lockstep.analysis.words import NOTHING
from lockstep.strategies.resource import ResourceId

_MUCH = 0.2  # of the workers' time, that is said beside what takes more of it
_DOES = {"server": "applying updates", "relay": "adding up updates"}  # what a processor is busy with
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
    if found.who is not None:
        return f"{_who(found, found.who)}, {_busy(found)}{_shards(found.remedy)}"
    name, share = _name(found), f"{found.share:.0%} of their time"
    if found.kind == "waiting" and found.stopped:
        return f"{name}: workers wait for them {share}"
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
    if found.who is None:
        return _name(found)
    who = found.who.towards("both") if found.together else found.who
    return f"{_serving(found)}{who.whose} {who.noun}".strip()


def bound_by(found: Bottleneck) -> str:
    """As the end of a sentence: "server 0's down-link (93% busy)"."""
    if found.who is not None:
        return f"{_who(found, found.who)} ({_busy(found)})"
    waits = found.kind == "waiting" and not found.stopped
    more = f": {_who_is_slow(found)}" if waits else ""
    return f"{_name(found)} ({found.share:.0%} of the median worker's time{more or _besides(found)})"


def _name(found: Bottleneck) -> str:
    return "failures and checkpoints" if found.kind == "waiting" and found.stopped else _NAMES[found.kind]


def _who(found: Bottleneck, who: ResourceId) -> str:
    """ "server 0's up-link and down-link", "the servers' processors (applying updates)"."""
    what = who.noun
    if found.together:
        what = f"{who.towards('up').noun} and {who.towards('down').noun}"
    if who.kind == "processor":
        what += f" ({_DOES[who.owner]})"
    return " ".join(part for part in (who.the, _serving(found) + who.whose, what) if part)


def _serving(found: Bottleneck) -> str:
    return "serving " if found.serving else ""


def _busy(found: Bottleneck) -> str:
    return f"{'together ' if found.together else ''}{found.share:.0%} busy"


def _shards(remedy: Remedy | None) -> str:
    if remedy is None:
        return ""
    shards, to = f"; {remedy.shards:,} shards", remedy.to
    if to is None:
        return f"{shards} would spread it over all hosts"
    return f"{shards} would move it to {to.name if isinstance(to, ResourceId) else _NAMES[to]}"


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
    if found.stopped:
        return "mostly for who has failed, or for checkpoints"
    if found.slowest_times < STANDS_OUT:
        if found.stages > 1:
            return "no stage stands out, they wait for one another"
        return "no worker stands out, their gradients take different times"
    if found.largest >= 0:
        return f"stage {found.largest} has the most work ({found.slowest_times:.1f} times the median stage's)"
    return f"worker {found.slowest} is the slowest ({found.slowest_times:.1f} times the median gradient)"


def _unused(found: Bottleneck) -> str:
    which = " or ".join(found.busiest)
    return (
        f"no {which} over {ceil(100 * max(found.busiest.values()))}% busy"
        if which
        else "no bandwidth is limited"
    )
