"""Rates that can be seen without a solution: every link holds back either all who cross it, or nobody.

So it mostly is where few flows meet, and those of a worker are narrowed by its own card alone.
"""

from collections.abc import Iterable
from itertools import chain
from math import inf

from lockstep.simulator.filling import Order
from lockstep.simulator.links import Flow, Link

_SURELY = 1 + 1e-9  # so many times as much: rounding makes no difference


def search(changed: Iterable[Link]) -> list[Link]:
    """Changed links, and all that share flows with them, directly or not, as a search meets them."""
    found = [*changed]
    seen = set(found)
    for link in found:  # which grows
        for path in link.flows.values():
            for crossed in path:
                if crossed not in seen:
                    seen.add(crossed)
                    found.append(crossed)
    return found


def at_sight(
    changed: Iterable[Link], reached: Iterable[Link], order: Order
) -> list[tuple[Flow, Link]] | None:
    """Give links their rates; the flows that have come, and the link that holds each back.

    None, and nothing has happened, if they must be solved. The bits are those of `max_min`: no flow is frozen
    but by the one link that holds it back, which nobody has taken anything from.
    """
    came = {link: new for link in changed if (new := [flow for flow in link.flows if flow.owner is None])}
    if not came:
        return None
    owners: dict[Flow, Link] = {}
    held: dict[Link, int] = {}  # of those that have come
    for link in sorted(came, key=lambda link: link.capacity / len(link.flows)):
        new = came[link]
        if link.count + len(new) == len(link.flows) and owners.keys().isdisjoint(new):
            owners |= dict.fromkeys(new, link)
            held[link] = len(new)
    if len(owners) < len(set(chain.from_iterable(came.values()))):
        return None
    rates, least = {}, inf
    for link in reached:
        count, flows = link.count + held.get(link, 0), len(link.flows)
        if link.tokens is not None or 0 < count < flows:
            return None
        if count:
            rates[link] = link.capacity / flows
        elif flows and link.capacity / flows < least:
            least = link.capacity / flows
    if max(rates.values()) * _SURELY >= least:
        return None
    for link, rate in rates.items():
        link.rate = rate
    return [each for link in held for each in order.of(link, came[link])]
