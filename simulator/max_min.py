"""Max-min fair rates by progressive filling (Bertsekas and Gallager, Data Networks, §6.5.2)."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Flow = TypeVar("Flow", bound=Hashable)
Link = TypeVar("Link", bound=Hashable)


def max_min(
    paths: Mapping[Flow, Sequence[Link]], capacity: Mapping[Link, float]
) -> dict[Flow, tuple[float, Link]]:
    """For every flow its max-min fair rate, in the unit of the capacities, and the link that holds it back.

    All rates rise together; when a link is full its flows are frozen at the rate they have. In the result
    every flow crosses a full link on which no flow is faster. Every path has at least one link.
    """
    crossing: dict[Link, dict[Flow, None]] = {}  # dictionaries, not sets: the order must not be chance
    for flow, path in paths.items():
        for link in path:
            crossing.setdefault(link, {})[flow] = None
    left = {link: capacity[link] for link in crossing}
    rates: dict[Flow, tuple[float, Link]] = {}
    while crossing:
        share = {link: left[link] / len(flows) for link, flows in crossing.items()}
        rate = min(share.values())
        for link in [link for link, s in share.items() if s == rate]:
            for flow in list(crossing.get(link, ())):
                rates[flow] = rate, link
                for crossed in paths[flow]:
                    left[crossed] -= rate
                    del crossing[crossed][flow]
                    if not crossing[crossed]:
                        del crossing[crossed]
    return rates
