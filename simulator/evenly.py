"""Max-min fair rates where all flows have the same: the bits of `max_min`, which needs one round for them.

So it mostly is where few flows meet: a worker's own card narrows them all, or what they share does.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from lockstep.simulator.filling import Order
from lockstep.simulator.links import Flow, Link


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


class Even:
    """Links without token buckets, in the order of the search."""

    __slots__ = ("_rate", "_reached", "_saturated")
    in_order = True

    def __init__(self, reached: Sequence[Link]) -> None:
        self._reached = reached
        self._saturated: set[Link] | None = None

    def solve(self, _: Order) -> list[tuple[Flow, Link]] | None:
        """Give links that fill their rate; the flows that another link holds back from now on, and that link.

        None, and nothing has happened, if rates differ.
        """
        flows = dict[Flow, tuple[Link, ...]]()
        for link in self._reached:
            flows |= link.flows
        crossed = dict.fromkeys(chain.from_iterable(flows.values()))
        shares = {link: link.capacity / len(link.flows) for link in crossed}
        self._rate = rate = min(shares.values(), default=0.0)
        full = [link for link, share in shares.items() if share == rate]
        frozen = set[Flow]()
        moved: list[tuple[Flow, Link]] = []
        for link in full:
            own = link.flows.keys() - frozen
            frozen |= own
            new = [flow for flow in own if flow.owner is not link]
            if len(new) > 1:
                new = [flow for flow in flows if flow in new]
            moved += [(flow, link) for flow in new]
        if len(frozen) < len(flows):
            return None
        for link in full:
            link.rate = rate
        return moved

    def alone(self, link: Link) -> bool:
        """See `Filling.alone`."""
        if self._saturated is None:
            rate = self._rate
            self._saturated = {m for m in self._reached if m.count or rate * len(m.flows) > m.sustained}
        return len(self._saturated.intersection(chain.from_iterable(link.flows.values()))) == 1  # itself
