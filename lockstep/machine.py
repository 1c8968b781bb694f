"""What this machine is, in words, without its name."""

import os
import platform
from pathlib import Path


def processor() -> str:
    """The processor's model."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def system() -> str:
    """The kernel and its version, without what its builder has added."""
    return f"{platform.system()} {platform.release().partition('-')[0]}"


def cores() -> int:
    """How many of its cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
