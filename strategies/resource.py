"""Links and processors: what each is, whose it is, which way it carries, and what people call it.

Names are made here and read nowhere: who wants to know something of a link asks for a field. (Only a user's
own pattern, in `cluster.network.varying`, is held against names.)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["card", "inner", "fabric", "processor", "other"]
Direction = Literal["up", "down", "out", "both", ""]
FIELDS = ("kind", "owner", "number", "direction", "other")
_PLURAL = {"leaf": "leaves"}  # others have an s more
_WAY = {"up": "up to", "down": "down from", "both": "to"}


@dataclass(frozen=True)
class ResourceId:
    """A link or a processor, or all that do the same.

    kind "card": of a host's network card. "inner": between the processes of a host. "fabric": between racks,
    leaves and spines, or sites. "processor": of a server or relay. "other": what else flows cross in a
    simulation, such as a host's cores; no run's utilisation has any.
    """

    kind: Kind
    owner: str
    """Whose it is: "worker", "server", "relay", "host" (of several processes), "rack", "leaf" or "site"."""
    number: int | None
    """Which of them; None: all."""
    direction: Direction = "both"
    """As the owner sees it; "out": from one site to another; "": what is no link has none."""
    other: int = -1
    """The spine or site at its far end; -1: there is none, or all are meant."""

    @property
    def all(self) -> "ResourceId":
        """All that do the same: with an owner of that kind, in that direction."""
        return ResourceId(self.kind, self.owner, None, self.direction)

    def towards(self, direction: Direction) -> "ResourceId":
        """The same, in another direction."""
        return ResourceId(self.kind, self.owner, self.number, direction, self.other)

    @property
    def name(self) -> str:
        """What people call it: "server 0's up-link", "the servers' up-links"; "server 0" is its processor."""
        if self.kind in ("processor", "other") and self.number is not None:
            return f"{self.owner} {self.number}"
        return " ".join(part for part in (self.the, self.whose, self.noun) if part)

    @property
    def the(self) -> str:
        """The article that its name begins with, if it does."""
        return "the" if self.number is None or self.owner == "site" else ""

    @property
    def whose(self) -> str:
        """ "server 0's", "servers'"; nothing of links between sites."""
        if self.owner == "site":
            return ""
        owners = _PLURAL.get(self.owner, self.owner + "s")
        return f"{owners}'" if self.number is None else f"{self.owner} {self.number}'s"

    @property
    def noun(self) -> str:
        """What it is, without its owner: "up-link"; of all "up-links"."""
        if self.owner == "site":
            pair = f"link from site {self.number} to site {self.other}"
            return "links between the sites" if self.number is None else pair
        s = "s" * (self.number is None)
        if self.kind == "processor":
            return f"processor{s}"
        if self.kind == "inner":
            return f"inner link{s}"
        if self.owner == "leaf":
            return f"link{s} {_WAY[self.direction]} spine{s or f' {self.other}'}"
        return f"{self.direction}-link{s}" if self.direction in ("up", "down") else f"link{s}"

    @staticmethod
    def of(fields: Mapping[str, Any]) -> "ResourceId":
        """What a mapping, such as a row of a table, has under the names of the fields."""
        number = fields["number"]
        return ResourceId(
            fields["kind"],
            fields["owner"],
            None if number is None else int(number),
            fields["direction"],
            int(fields["other"]),
        )
