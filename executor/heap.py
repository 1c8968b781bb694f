"""Memory that has been freed is used again at once.

A C library gives large pieces back to the system, and a vector of megabytes then costs more for its fresh
pages than for its arithmetic. A process of a run makes vectors of the same sizes all the time.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # <malloc.h>
_ALL = 2**31 - 1


def keep_freed_memory() -> None:
    """Let this process keep what it frees, in one heap for all its threads; only glibc can be told so."""
    libc = ctypes.CDLL(None)
    if sys.platform == "linux" and hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_ARENA_MAX, 1)
        # Older ones take 32 MiB at most, and would keep what they have, for good, if given more.
        _ = libc.mallopt(_MMAP_THRESHOLD, 1 << 30) or libc.mallopt(_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(_TRIM_THRESHOLD, _ALL)
