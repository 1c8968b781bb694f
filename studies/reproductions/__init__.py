"""What was published about data-parallel training, tried in virtual time: the claims of `lockstep claims`."""

from collections.abc import Sequence

from lockstep import selection
from lockstep.studies.reproductions import (
    averaging,
    codecs,
    delays,
    elastic,
    momentum,
    normalised,
    peers,
    pipelines,
    servers,
    shared,
    staleness,
    waiting,
    windows,
)
from lockstep.studies.reproductions.claim import Claim


def claims() -> list[Claim]:
    """All claims."""
    topics = (
        *(staleness, momentum, windows, normalised, delays, elastic, averaging, waiting),
        *(servers, peers, codecs, shared, pipelines),
    )
    return [claim for topic in topics for claim in topic.CLAIMS]


def chosen(patterns: Sequence[str]) -> list[Claim]:
    """The claims whose names have one of the patterns in them (shell wildcards); all without a pattern.

    Raises ScenarioError for a pattern that is in no name.
    """
    found = claims()
    names = ", ".join(claim.name for claim in found)
    return selection.chosen(found, patterns, "claim", f"claims are {names}")
