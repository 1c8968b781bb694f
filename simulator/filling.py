"""Progressive filling that goes on from the last one: no round before the first change is made again.

A solution is a sequence of rounds (max_min.py): in each, the links with the least share for a flow fill, and
freeze what crosses them. As long as links with other flows than last time have a larger share than those
that fill, the rounds are those of last time, and what every link had left before each of them is kept.
Rates have the bits of `max_min`, and where links fill together a flow is the first one's as it is there, so
that it remains the oracle.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf

from lockstep.simulator.errors import SimulationError
from lockstep.simulator.links import Flow, Link

_NEVER = 1 << 60  # a round that does not come


class Filling:
    """The rounds of some links. A link's place is its number here; no link has place 0."""

    __slots__ = (
        *(
            "_before",
            "_fresh",
            "_highest",
            "_links",
            "_long",
            "_masks",
            "_others",
            "_rates",
            "_rounds",
            "_ties",
        ),
        "_unsaturated",
    )
    in_order = False  # whether a part's links are in the order of the search

    def __init__(self) -> None:
        self._links: list[Link | None] = [None]
        self._long = False  # whether a path has more than two links
        self._others: list[Sequence[int | tuple[int, ...]]] = [()]  # by link and flow: its other links
        self._masks = [0]  # by link: those with which it shares flows, as bits, that of place 0 being 2
        self._rounds = [_NEVER]  # in which each link fills
        self._rates: list[float] = []  # by round: of the flows that it freezes
        self._highest: list[float] = []  # by round: the highest rate until then
        self._ties: list[list[Flow]] = []  # by round: flows that cross several of its links
        # By round, and at the end: what each link has left, flows not frozen, and share of each.
        self._before: list[tuple[list[float], list[int], list[float]]] = [([inf], [_NEVER], [inf])]

    def part(self, changed: Iterable[Link]) -> list[Link] | None:
        """Changed links, and all that share flows with them, directly or not.

        None if they cannot be solved from here.
        """
        links, others, carrying, mask = [], [], 0, 1
        for link in changed:
            if link.flows:
                others.append(link)
        seen = set(others)
        for place, known in enumerate(self._links):
            mask <<= 1
            if (
                known is not None
                and known.place == place
                and known.filling is self
                and (flows := known.flows)
            ):
                links.append(known)
                carrying |= mask
                if (known.used != known.solved or len(flows) != known.solved_count) and known not in seen:
                    others.append(known)
                    seen.add(known)
        for link in others:  # which grows
            if link.filling is not self:
                if link.filling is not None or link.tokens is not None:
                    return None
                carrying |= 2 << len(self._links)
                self._add(link)
                links.append(link)
            for crossed in dict.fromkeys(chain.from_iterable(link.flows.values())):
                if crossed.filling is not self and crossed not in seen:
                    others.append(crossed)
                    seen.add(crossed)
        if len(self._links) > 2 * len(links) + 16:
            return None
        self._look_around(others)
        if (reached := self._reached(changed, carrying)) != carrying:
            for link in links:
                if not reached >> link.place + 1 & 1:
                    link.filling = None
            links = [link for link in links if link.filling is self]
            others = [link for link in others if link.filling is self]
        self._fresh = others
        return [*links, *[link for link in changed if not link.flows]]

    def _add(self, link: Link) -> None:
        link.filling, link.place, link.solved = self, len(self._links), -1
        self._links.append(link)
        self._rounds.append(_NEVER)
        self._others.append(())
        self._masks.append(0)
        for left, rising, share in self._before:
            left.append(inf)
            rising.append(0)
            share.append(inf)

    def _reached(self, changed: Iterable[Link], carrying: int) -> int:
        """The links that share flows with changed ones, directly or not, as bits."""
        masks, reached, done = self._masks, 0, 0
        for link in changed:
            if link.flows:
                reached |= 2 << link.place
        while reached != carrying and (more := reached & ~done):
            place = more.bit_length() - 2
            done |= 2 << place
            reached |= masks[place]
        return reached

    def solve(self, order: "Order") -> list[tuple[Flow, Link]]:
        """Give links their rates; the flows that another link holds back from now on, and that link.

        Those of one link are in the order in which a search meets them; all are if some want to hear of it.
        """
        first = self._return(self._fresh)
        moved = self._tied_before(first, order)
        moved += self._go_on(first, order)
        for link in self._fresh:
            link.solved, link.solved_count = link.used, len(link.flows)
        if len([flow for flow, _ in moved if flow.listens]) > 1:
            moved.sort(key=lambda each: (self._rounds[each[1].place], order.met(each[1])))
        self._unsaturated: dict[Link, bool] = {}
        return moved

    def alone(self, link: Link) -> bool:
        """Whether no other link of its flows holds anybody back, nor would if its flows had equal shares."""
        known = self._unsaturated
        for path in link.flows.values():
            for other in path:
                if other is not link:
                    if other.count:
                        return False
                    if other not in known:
                        fastest = max([flow.owner.rate for flow in other.flows])  # type: ignore[union-attr]
                        known[other] = fastest * len(other.flows) <= other.sustained
                    if not known[other]:
                        return False
        return True

    def _look_around(self, links: Iterable[Link]) -> None:
        """Note which other links the flows of these cross."""
        links = [*links]
        if not self._long:
            try:
                for link in links:
                    found = [(two if one is link else one).place for one, two in link.flows.values()]
                    self._others[link.place] = found
                    self._masks[link.place] = sum([2 << place for place in {*found}])
                return
            except ValueError:
                self._long, links = (
                    True,
                    [
                        link
                        for place, link in enumerate(self._links)
                        if link is not None and link.flows and link.filling is self and link.place == place
                    ],
                )
        for link in links:
            rest = [tuple([each.place for each in path if each is not link]) for path in link.flows.values()]
            self._others[link.place] = rest
            self._masks[link.place] = sum([2 << place for place in {*chain.from_iterable(rest)}])

    def _return(self, changed: Sequence[Link]) -> int:
        """Go back to the first round that may be another than last time; its number."""
        rounds, rates, highest = self._rounds, self._rates, self._highest
        first = min([len(rates), *[rounds[link.place] for link in changed]])
        for link in changed:
            rounds[link.place] = _NEVER
        frozen = []
        for link in changed:
            others = self._others[link.place]
            if self._long:
                found = [min([rounds[m] for m in rest], default=_NEVER) for rest in others]  # type: ignore
            else:
                found = [rounds[m] for m in others]  # type: ignore[index]
            frozen.append(sorted([r for r in found if r < first]))
            first = min(first, self._until(link, frozen[-1], first))
        left, rising, share = self._before[first]
        for each in (highest, self._ties, self._before):
            del each[first:]
        self._rounds = [r if r < first else _NEVER for r in rounds]
        for place, known in enumerate(self._links):
            if known is None or not (known.flows and known.filling is self and known.place == place):
                share[place] = left[place] = inf
        self._before.append((left, rising, share))
        for link, gone in zip(changed, frozen, strict=True):
            here, count, place, at = link.capacity, len(link.flows), link.place, 0
            gone.append(_NEVER)
            for number, (left, rising, share) in enumerate(self._before):
                left[place], rising[place] = here, count
                share[place] = here / count if count else inf
                while gone[at] == number:
                    here -= rates[number]
                    count -= 1
                    at += 1
        del rates[first:]
        return first

    def _until(self, link: Link, frozen: Sequence[int], first: int) -> int:
        """The first round in which a link would fill too, if before `first`; frozen: those of its flows."""
        rates, highest = self._rates, self._highest
        left, rising, since = link.capacity, len(link.flows), 0
        for r in frozen:
            share = left / rising
            if highest[r] >= share:
                for number in range(since, r + 1):
                    if rates[number] >= share:
                        return number
            left -= rates[r]
            rising -= 1
            if not rising:
                return first
            since = r
        if rising and first and highest[first - 1] >= left / rising:
            return next((n for n in range(since, first) if rates[n] >= left / rising), first)
        return first

    def _tied_before(self, first: int, order: "Order") -> list[tuple[Flow, Link]]:
        """Flows of rounds that are kept, of which another link is now the first that fills."""
        moved = []
        for number in range(first):
            if self._ties[number]:
                to: dict[Link, set[Flow]] = {}
                for flow in self._ties[number]:
                    if flow not in flow.path[0].flows or flow.path[0].filling is not self:
                        continue  # it has ended, or nothing connects it with these links any more
                    filled = [link for link in flow.path if self._rounds[link.place] == number]
                    if not filled:
                        continue  # its links left and joined again: their round is a later one
                    owner = order.first(filled)
                    if flow.owner is not owner:
                        to.setdefault(owner, set()).add(flow)
                for owner in sorted(to, key=order.met):
                    owner.rate = self._rates[number]  # it may have held back nobody
                    moved += order.of(owner, [flow for flow in owner.flows if flow in to[owner]])
        return moved

    def _go_on(self, number: int, order: "Order") -> list[tuple[Flow, Link]]:
        """Make the rounds from that one on."""
        moved: list[tuple[Flow, Link]] = []
        rates, highest, links = self._rates, self._highest, self._links
        left, rising, share = self._before[-1]
        freeze = self._freeze_long if self._long else self._freeze
        while (rate := min(share)) < inf:
            if share.count(rate) == 1:
                filled = [share.index(rate)]
            else:
                filled = [place for place, each in enumerate(share) if each == rate]
                together = sum([2 << place for place in filled])
                if any(self._masks[place] & together for place in filled):  # else it does not matter
                    filled.sort(key=lambda place: order.met(links[place]))  # type: ignore[arg-type]
            rates.append(rate)
            highest.append(max(rate, highest[-1]) if highest else rate)
            self._ties.append([])
            left, rising, share = left[:], rising[:], share[:]
            for place in filled:
                link = links[place]
                assert link is not None
                link.rate = rate
                flows = freeze(link, number, rate, left, rising, share)
                moved += order.of(link, flows)
            self._before.append((left, rising, share))
            number += 1
        if min(left) < 0:
            for link, much in zip(links, left, strict=True):
                if link is not None and much < -1e-9 * link.capacity:
                    raise SimulationError(f"{link.id.name} carries more than its capacity")
        return moved

    def _freeze(
        self,
        link: Link,
        number: int,
        rate: float,
        left: list[float],
        rising: list[int],
        share: list[float],
    ) -> list[Flow]:
        """Freeze what crosses a link that fills; those of the flows that it did not hold back before."""
        rounds, moved, place = self._rounds, [], link.place
        for flow, m in zip(link.flows, self._others[place], strict=True):
            if (at := rounds[m]) == _NEVER:  # type: ignore[index]
                if flow.owner is not link:
                    moved.append(flow)
                left[m] = much = left[m] - rate  # type: ignore[index]
                rising[m] = count = rising[m] - 1  # type: ignore[index]
                share[m] = much / count if count else inf  # type: ignore[index]
            elif at == number:
                self._ties[-1].append(flow)
        rounds[place], share[place] = number, inf
        return moved

    def _freeze_long(
        self,
        link: Link,
        number: int,
        rate: float,
        left: list[float],
        rising: list[int],
        share: list[float],
    ) -> list[Flow]:
        """The same for paths of any length."""
        rounds, moved, place = self._rounds, [], link.place
        for flow, rest in zip(link.flows, self._others[place], strict=True):
            at = min([rounds[m] for m in rest], default=_NEVER)  # type: ignore[union-attr]
            if at == _NEVER:
                if flow.owner is not link:
                    moved.append(flow)
                for m in rest:  # type: ignore[union-attr]
                    left[m] = much = left[m] - rate
                    rising[m] = count = rising[m] - 1
                    share[m] = much / count if count else inf
            elif at == number:
                self._ties[-1].append(flow)
        rounds[place], share[place] = number, inf
        return moved


class Order:
    """In which order a search from changed links meets links and flows; it goes as far as somebody asks."""

    __slots__ = ("_looked", "_met", "_reached")

    def __init__(self, changed: Iterable[Link]) -> None:
        self._reached = {
            link: place for place, link in enumerate(changed)
        }  # in which it looks at their flows
        self._met: dict[Link, int] = {}  # in which it comes upon them, on paths
        self._looked: Iterator[Link] | None = None

    def all(self) -> list[Link]:
        """All links that it comes upon, as it does."""
        for _ in self._search():
            pass
        return [*self._met]

    def met(self, *links: Link) -> int:
        """When the search comes upon the first of some links, on flows' paths."""
        return self._first(self._met, links)

    def first(self, links: Sequence[Link]) -> Link:
        """Which of some links it comes upon first, on flows' paths."""
        self.met(*links)
        return min(links, key=lambda link: self._met.get(link, inf))

    def reached(self, *links: Link) -> int:
        """When it looks at the flows of the first of some links."""
        return self._first(self._reached, links)

    def of(self, link: Link, flows: Sequence[Flow]) -> list[tuple[Flow, Link]]:
        """A link and flows on it, given in the order in which they came, in the order of the search."""
        if len(flows) > 1:
            flows = sorted(flows, key=lambda flow: self.reached(*flow.path))
        return [(flow, link) for flow in flows]

    def _first(self, places: dict[Link, int], links: Sequence[Link]) -> int:
        while not (known := [places[link] for link in links if link in places]):
            next(self._search())
        return min(known)

    def _search(self) -> Iterator[Link]:
        if self._looked is None:
            self._looked = self._look()
        return self._looked

    def _look(self) -> Iterator[Link]:
        met, reached = self._met, self._reached
        order = [*reached]
        for link in order:  # which grows
            for crossed in dict.fromkeys(chain.from_iterable(link.flows.values())):
                if crossed not in met:
                    met[crossed] = len(met)
                    if crossed not in reached:
                        reached[crossed] = len(reached)
                        order.append(crossed)
            yield link
