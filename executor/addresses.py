"""At which address the other hosts reach this one, and on which network card that is."""

import socket
from ipaddress import ip_address

from lockstep.executor.barrier import barrier
from lockstep.executor.stores import Store


def own_address(store: Store, rank: int, world: int, store_host: str) -> str:
    """The address that this host uses towards the store's; of that host itself, towards another one.

    A host may know its own name as an address of its loopback (Debian's 127.0.1.1), where nobody else
    reaches it.
    """
    own = _towards(store_host)
    store.set(f"own address/{rank}", own)
    barrier(store, "addresses", world)
    if not _is_loopback(own):
        return own
    told = [store.get(f"own address/{other}").decode() for other in range(world)]
    return next((_towards(other) for other in told if not _is_loopback(other)), own)


def address_of(card: str) -> str | None:
    """The first IPv4 address of a network interface; None if there is no such interface, or it has none."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        for found in ip.get_addr(family=socket.AF_INET):
            if found.get_attr("IFA_LABEL") == card:
                return str(found.get_attr("IFA_LOCAL"))
    return None


def card_of(address: str) -> str | None:
    """The name of the network interface that has an address; None if none has it."""
    from pyroute2 import IPRoute

    with IPRoute() as ip:
        for found in ip.get_addr(family=socket.AF_INET):
            if found.get_attr("IFA_LOCAL") == address:
                return str(found.get_attr("IFA_LABEL"))
    return None


def _towards(host: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # UDP: chooses a route, sends nothing
        return str(probe.getsockname()[0])


def _is_loopback(address: str) -> bool:
    return ip_address(address).is_loopback
