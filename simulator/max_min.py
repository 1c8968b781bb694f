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
    crossing: dict[Link, list[Flow]] = {}
    for flow, path in paths.items():
        for link in path:
            crossing.setdefault(link, []).append(flow)
    left = {link: capacity[link] for link in crossing}
    rising = {link: len(flows) for link, flows in crossing.items()}  # how many are not frozen
    rates: dict[Flow, tuple[float, Link]] = {}
    while rising:
        share = {link: left[link] / count for link, count in rising.items()}
        rate = min(share.values())
        for link in [link for link, s in share.items() if s == rate]:
            frozen = rate, link
            for flow in crossing[link]:
                if flow not in rates:
                    rates[flow] = frozen
                    for crossed in paths[flow]:
                        left[crossed] -= rate
                        rising[crossed] -= 1
        rising = {link: count for link, count in rising.items() if count}
    return rates
