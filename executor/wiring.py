"""How a fabric is made of Linux's parts: bridges for switches, pairs of interfaces (veth) for cables.

`ip` is pyroute2's socket in the namespace of the switches, or of a host. The addresses are of the range for
benchmarks (RFC 2544).
"""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from lockstep.executor.fabric import Fabric, Way
from lockstep.executor.namespaces import Namespace
from lockstep.executor.shaping import shape, train

_FIRST = IPv4Address("198.18.0.1")  # host 0's
CARD = "card"  # a host's interface
_PREFIX = 16  # bits of an address that name its network
_NETWORK = f"198.18.0.0/{_PREFIX}"
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
# A port of a bridge by which no frame leaves but those that the bridge's table says.
_QUIET = {"learning": 0, "unicast_flood": 0, "mcast_flood": 0, "bcast_flood": 0}
_BY_HAND, _BRIDGES = 0x40, 0x04  # NUD_NOARP and NTF_MASTER: an entry of a bridge's table, which stays
_NOBODY = 0xFFFF  # the number of no host
_PERMANENT = 0x80  # NUD_PERMANENT: a neighbour that need not be asked for


def address(host: int) -> str:
    """Where the others reach a host."""
    return str(_FIRST + host)


def make_switches(ip: Any, fabric: Fabric) -> None:
    """Make the bridges."""
    for switch in fabric.switches:
        ip.link("add", ifname=f"switch{switch}", kind="bridge")


def lay_cables(ip: Any, fabric: Fabric, spaces: Sequence[Namespace]) -> None:
    """Make the cables; those to hosts end in the hosts' `spaces`."""
    for host in fabric.hosts:
        card = {"ifname": CARD, "address": _station(host), "net_ns_fd": spaces[host].file.fileno()}
        ip.link("add", ifname=_port((fabric.home[host], host)), kind="veth", peer=card)
    for a, b in fabric.rates:
        if a in fabric.switches and a < b:
            ip.link("add", ifname=_port((a, b)), kind="veth", peer={"ifname": _port((b, a))})


def plug_in(ip: Any, fabric: Fabric) -> None:
    """Plug the cables into the switches, shape what leaves there, tell each switch the way to each host."""
    index, crossing = _interfaces(ip), fabric.crossing()
    for way in fabric.rates:
        if way[0] in fabric.switches:
            port = index[_port(way)]
            ip.link("set", index=port, master=index[f"switch{way[0]}"])
            ip.brport("set", index=port, **_QUIET)
            _shape(ip, port, fabric, way, crossing[way])
            ip.link("set", index=port, state="up")
    for switch in fabric.switches:
        ip.link("set", index=index[f"switch{switch}"], state="up")
        for host in fabric.hosts:
            port = index[_port((switch, fabric.towards(switch, host)))]
            ip.fdb("add", ifindex=port, lladdr=_station(host), state=_BY_HAND, flags=_BRIDGES)


def set_up(ip: Any, fabric: Fabric, host: int) -> None:
    """Shape what leaves a host, give it its address, and tell it those of the others."""
    index, others = _interfaces(ip), [other for other in fabric.hosts if other != host]
    card = index[CARD]
    if fabric.slowest is not None:
        ip.link("set", index=card, gso_max_size=train(fabric.slowest))
    _shape(ip, card, fabric, (host, fabric.home[host]), [(host, other) for other in others])
    for interface in (index["lo"], card):
        ip.link("set", index=interface, state="up")
    ip.addr("add", index=card, address=address(host), prefixlen=_PREFIX)
    _choose_congestion_control(ip, card, host)
    tell(ip, dict.fromkeys(others, True))


def tell(ip: Any, reached: Mapping[int, bool]) -> None:
    """Tell a host the hardware addresses of others; of those that it does not reach, one that nobody has.

    No switch knows a way there: such frames are lost, and TCP sends them again.
    """
    card = _interfaces(ip)[CARD]
    for other, there in reached.items():
        station = _station(other if there else _NOBODY)
        ip.neigh("replace", ifindex=card, dst=address(other), lladdr=station, state=_PERMANENT)


def _choose_congestion_control(ip: Any, card: int, host: int) -> None:
    """Linux's default, whatever this machine's is: BBR gives new short transfers less than their share."""
    if "cubic" in _AVAILABLE.read_text().split():
        metrics = {"cc_algo": "cubic"}
        ip.route(
            "replace", dst=_NETWORK, oif=card, scope=253, proto=2, prefsrc=address(host), metrics=metrics
        )


def _shape(ip: Any, index: int, fabric: Fabric, way: Way, pairs: Sequence[tuple[int, int]]) -> None:
    """Shape what leaves an interface: on ways up, which lead to a higher number, the last pair is the first.

    The first is a little ahead (shaping.py): a pair that is first on the way up is last on the way down.
    """
    rate, slowest = fabric.rates[way], fabric.slowest
    if rate is not None and slowest is not None:
        pairs = sorted(pairs, reverse=way[0] < way[1])
        shape(ip, index, rate, train(slowest), [(_FIRST + a, _FIRST + b) for a, b in pairs])


def _interfaces(ip: Any) -> dict[str, int]:
    return {link.get_attr("IFLA_IFNAME"): link["index"] for link in ip.get_links()}


def _port(way: Way) -> str:
    return f"port{way[0]}-{way[1]}"


def _station(host: int) -> str:
    """The hardware address of a host."""
    return f"02:00:00:00:{host >> 8:02x}:{host & 255:02x}"
