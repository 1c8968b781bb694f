"""Whose processes are at the other ends of a process's connections on this host.

gloo's and NCCL's connections have no key: whoever connects first to their port takes a worker's place. On one
host the kernel tells whose the other ends are.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ESTABLISHED = "01"
_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")


class _Connection(NamedTuple):
    here: str
    there: str
    user: int
    inode: str


def check_ends() -> None:
    """Raise PermissionError if another user's process is at the other end of a connection on this host."""
    found = list(_connections())
    users = {(each.here, each.there): each.user for each in found}
    own = _own_sockets()
    for each in found:
        user = users.get((each.there, each.here), each.user)  # of another host: not in the table
        if each.inode in own and user != each.user:
            raise PermissionError(
                f"a process of user {user} has connected where only those of this run should: run again, and "
                "see who it is (docs/security.md)"
            )


def _connections() -> Iterator[_Connection]:
    """All of this host, or network namespace."""
    for table in _TABLES:
        if Path(table).exists():
            for line in Path(table).read_text("ascii").splitlines()[1:]:
                _, here, there, state, _, _, _, user, _, inode, *_ = line.split()
                if state == _ESTABLISHED:
                    yield _Connection(here, there, int(user), inode)


def _own_sockets() -> set[str]:
    """The inodes of this process's sockets."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except OSError:
            continue  # the listing's own
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found
