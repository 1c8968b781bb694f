"""What a stalled run is told as: who, on which host, and what is known of the cause."""

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psutil

from lockstep.executor.watchdog import Stall


def stalled(stall: Stall, names: Sequence[str], about: Mapping[int, Mapping[str, Any]]) -> str:
    """One line. names: of the ranks, such as "worker 0"; about: the host and the number of each process."""

    def who(rank: int) -> str:
        host = about.get(rank, {}).get("host")
        return f"{names[rank]} (rank {rank}){f' on {host}' if host else ''}"

    seconds = f"{stall.seconds:.0f} s"
    if stall.kind == "lost":
        sender, receiver = stall.ranks
        messages = "a message" if stall.messages == 1 else f"{stall.messages} messages"
        return (
            f"{messages} from {who(sender)} to {who(receiver)} did not arrive within {seconds}: "
            "the network between them is cut, or has lost them"
        )
    if not stall.ranks:
        return f"nobody gets on: for {seconds} all processes have waited for each other's messages"
    if stall.kind == "silent":
        said = f"{who(stall.ranks[0])} has given no sign for {seconds}"
        cause = _state(about.get(stall.ranks[0], {}))
    else:
        said, cause = f"{who(stall.ranks[0])} has not got on for {seconds}", ""
    others = f" (so have {_some(stall.ranks[1:], names)})" if len(stall.ranks) > 1 else ""
    waiting = f"; {_some(stall.waiting, names)} waited for it" if stall.waiting else ""
    return f"{said}{others}{cause}{waiting}"


def waiting_for(ranks: Sequence[int], names: Sequence[str]) -> str:
    """For a line of progress."""
    return f"waiting for {_some(ranks, names)}" if ranks else ""


def is_stopped(pid: int) -> bool:
    """Whether a process of this host is, such as by SIGSTOP."""
    with suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def _state(about: Mapping[str, Any]) -> str:
    """What this host knows of a process that gives no sign."""
    if about.get("host") != socket.gethostname():
        return ": it, its host or the network to it stands still"
    return ": it is stopped (SIGSTOP)" if is_stopped(about["pid"]) else ""


def _some(ranks: Sequence[int], names: Sequence[str]) -> str:
    named = ", ".join(names[rank] for rank in ranks[:3])
    return named if len(ranks) <= 3 else f"{named} and {len(ranks) - 3} more"
