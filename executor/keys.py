"""Who belongs to a run whose processes are on several hosts: those that know its key.

The key is a file that only its owner can read, the same on all hosts. From it every process derives a pair of
CURVE keys for itself and the public ones of the others, so that both ends of a connection know each other.
"""

import hmac
import os
import stat
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import zmq
from zmq.utils import z85

from lockstep.scenarios import ScenarioError

USUAL = Path("~/.config/lockstep/key")
_BYTES = 32


class Keys:
    """The keys of a run's processes, by name: "hub", "0", "1", …; `run` tells one run from another."""

    def __init__(self, secret: bytes, run: str, names: Iterable[str]) -> None:
        self._secret = hmac.digest(secret, run.encode(), sha256)
        self.names = {self.public(name).decode(): name for name in names}  # by public key

    def pair(self, name: str) -> tuple[bytes, bytes]:
        """The public and the secret key of a process."""
        secret = z85.encode(hmac.digest(self._secret, name.encode(), sha256))
        return zmq.curve_public(secret), secret

    def public(self, name: str) -> bytes:
        """The public key of a process."""
        return self.pair(name)[0]

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether the owner of this public key belongs to the run: what pyzmq asks."""
        return key.decode() in self.names


def make(file: Path) -> None:
    """Write a new key; raises ScenarioError if the file is there or cannot be written."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
            out.write(os.urandom(_BYTES).hex() + "\n")
    except OSError as error:
        raise ScenarioError(f"cannot write {str(file)!r}: {error.strerror}", key="FILE") from None


def read(file: Path | None) -> bytes:
    """The key in a file, or in the usual one. Raises ScenarioError, also if others could read it."""
    path = (file or USUAL).expanduser()
    try:
        with open(path, encoding="ascii") as key:
            found = os.fstat(key.fileno())
            if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or found.st_uid not in (0, os.geteuid()):
                raise ScenarioError(f"others can read {str(path)!r}: chmod 600 {path}", key="--key")
            secret = bytes.fromhex(key.read(1024).strip())
    except FileNotFoundError:
        problem = (
            f"processes on several hosts need a common key, and there is no {str(path)!r}: make one with "
            "'lockstep key', and copy it to all hosts (docs/hosts.md)"
        )
        raise ScenarioError(problem, key="--key") from None
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no key"
        raise ScenarioError(f"cannot read {str(path)!r}: {said}", key="--key") from None
    if len(secret) != _BYTES:
        raise ScenarioError(f"{str(path)!r} is no key: make one with 'lockstep key'", key="--key")
    return secret
