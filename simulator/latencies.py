"""How long messages are in the air where that is a matter of chance: `network.jitter`.

A latency is a shifted exponential: processes are woken up late, never early. The n-th message from one node
to another has a draw of its own, whatever else happens: two runs of one seed differ by what was changed.
"""

from collections.abc import Iterator

from lockstep.scenarios.network import Jitter
from lockstep.workloads import seeds

_AT_ONCE = 64  # draws


def latencies(
    jitter: Jitter, seed: int, key: tuple[int, ...], mean: float, sender: int, to: int
) -> Iterator[float]:
    """Those of the messages from one rank to another, in s, of that mean and at least 0.

    `key`: what else their draws depend on.
    """
    deviation = min(jitter.deviation, mean)
    rng = seeds.generator(seed, "latency", *key, jitter.draw, sender, to)
    while True:
        yield from (mean - deviation + deviation * rng.standard_exponential(_AT_ONCE)).tolist()
