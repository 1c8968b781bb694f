"""Max-min fair rates by a kernel that numba compiles, where it is installed: the bits of `max_min`.

It solves every part anew, in less time than Python takes to go on from the last solution (filling.py). Which
flows cross which links it is told once for each flow.
"""

from collections.abc import Iterable
from itertools import chain, islice
from typing import Any

import numpy as np

from lockstep.simulator.errors import SimulationError
from lockstep.simulator.filling import Order
from lockstep.simulator.links import Flow, Link
from lockstep.simulator.native import native

_LONG = 1 << 14  # so many flows may come and go before the arrays hear of it


class Compiled:
    """All flows of some links, and the last part that was solved. A link's place is its number here."""

    in_order = True  # a part's links are in the order of the search

    def __init__(self, everywhere: bool) -> None:
        """everywhere: whether anybody wants to hear of links that hold nobody back."""
        from lockstep.simulator import kernel

        self._kernel: Any = kernel
        self._solve: Any = native("kernel", "solve") or kernel.solve
        self._everywhere = everywhere
        self._links: list[Link] = []
        self._begin(1)

    def _begin(self, shift: int) -> None:
        """Know nothing any more; a flow has room for 2 ** shift links."""
        for link in self._links:
            link.filling = None
        self._links.clear()
        self._shift = shift
        self._log: list[Flow] = []  # what came or went since the last solution
        self._flows: list[Flow] = []  # by number; of one that is free, the last that had it
        self._numbers: dict[Flow, int] = {}
        self._free: list[int] = []
        kernel = self._kernel
        self._lr, self._lw = np.empty((kernel.LINK_REALS, 0)), np.empty((kernel.LINK_WHOLES, 0), np.int64)
        self._fw, self._ew = np.empty((5, 0), np.int64), np.empty((3, 0), np.int64)

    def note(self, *flows: Flow) -> None:
        """Flows have come or gone."""
        self._log += flows
        if len(self._log) > _LONG:
            self.part(())

    def part(self, changed: Iterable[Link]) -> list[Link] | None:
        """Changed links, and those that share flows with them, directly or not, as a search meets them.

        Without those that hold nobody back, nor did, if nobody wants to hear of them. None if they cannot be
        solved here: some have token buckets.
        """
        changed = [*changed]
        news = self._news(changed)
        if news is None:
            self._begin(1)
            return None
        for link in changed:
            self.limit(link)
        places = [link.place for link in changed]
        told = [np.array(each, np.int64) for each in (*news, places)]
        arrays, counts = (self._lr, self._lw, self._fw, self._ew), np.zeros(2, np.int64)
        too_much = self._solve(*told, self._everywhere, self._shift, *arrays, counts)
        if too_much >= 0:
            raise SimulationError(f"{self._links[too_much].id.name} carries more than its capacity")
        kernel, (n, moves) = self._kernel, counts.tolist()
        queue, alone = self._lw[[kernel.QUEUE, kernel.ALONE], :n]
        self._rates, self._moved = self._lr[kernel.RATE, queue].tolist(), self._fw[kernel.MOVED, :moves]
        links = [self._links[place] for place in queue.tolist()]
        self._alone: dict[Link, int] = dict(zip(links, alone.tolist(), strict=True))
        return links

    def solve(self, order: Order) -> list[tuple[Flow, Link]]:
        """Give links their rates; the flows that another link holds back from now on, and that link."""
        for link, rate in zip(self._alone, self._rates, strict=True):
            if rate:
                link.rate = rate
        numbers, owners = self._moved.tolist(), self._fw[self._kernel.OWNER, self._moved].tolist()
        return [(self._flows[n], self._links[at]) for n, at in zip(numbers, owners, strict=True)]

    def alone(self, link: Link) -> bool:
        """See `Filling.alone`."""
        return bool(self._alone[link])

    def limit(self, link: Link) -> None:
        """Learn what a link can do now."""
        kernel, place = self._kernel, link.place
        self._lr[kernel.CAPACITY, place], self._lr[kernel.SUSTAINED, place] = link.capacity, link.sustained

    def _news(self, changed: Iterable[Link]) -> tuple[list[int], list[int], list[int]] | None:
        """What `kernel.solve` is told: flows that went and came, and those of links that are new here."""
        links, numbers, shift, known = self._links, self._numbers, self._shift, len(self._links)
        logged = dict.fromkeys(self._log)
        self._log.clear()
        here = [flow for flow in logged if flow in flow.path[0].flows]
        gone = [numbers.pop(flow) for flow in logged if flow in numbers and flow not in flow.path[0].flows]
        self._free += gone
        came = [flow for flow in here if flow not in numbers]
        self._know(chain(changed, *[flow.path for flow in came]))
        for link in islice(links, known, None):  # which grow
            self._know(chain(*link.flows.values()))
        if any(link.tokens is not None for link in links[known:]):
            return None
        new = dict.fromkeys(chain(came, *[link.flows for link in links[known:]]))
        longest = max([len(flow.path) for flow in new], default=1)
        if longest > 1 << shift:
            self._begin((longest - 1).bit_length())
            return self._news(changed)
        for flow in new:
            if self._free:
                numbers[flow] = number = self._free.pop()
                self._flows[number] = flow
            else:
                numbers[flow] = len(self._flows)
                self._flows.append(flow)
        self._make_room()
        come: list[int] = []
        owners: list[int] = []
        for flow in came:
            for k, link in enumerate(flow.path):
                if link.place < known:
                    come += (numbers[flow] << shift) + k, link.place
        for link in links[known:]:
            self.limit(link)
            for flow, path in link.flows.items():
                come += (numbers[flow] << shift) + path.index(link), link.place
        for flow in new:
            owners += numbers[flow], -1 if flow.owner is None else flow.owner.place
        return gone, come, owners

    def _know(self, links: Iterable[Link]) -> None:
        for link in links:
            if link.filling is not self:
                link.filling, link.place = self, len(self._links)
                self._links.append(link)

    def _make_room(self) -> None:
        flows, links, kernel = len(self._flows), len(self._links), self._kernel
        new = *kernel.NEW, *[0] * (kernel.LINK_WHOLES - len(kernel.NEW))
        self._ew, self._fw = _with_room(self._ew, flows << self._shift, -1), _with_room(self._fw, flows, -1)
        self._lr, self._lw = _with_room(self._lr, links, 0), _with_room(self._lw, links, *new)


def _with_room(rows: np.ndarray, length: int, *empty: int) -> np.ndarray:
    """Rows of that length at least, and what they had; empty: what a row has else, or each of them."""
    if rows.shape[1] >= length:
        return rows
    found = np.empty((len(rows), 2 * length), rows.dtype)
    found[:, : rows.shape[1]] = rows
    found[:, rows.shape[1] :] = np.array(empty)[:, None]
    return found
