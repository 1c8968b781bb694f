"""The version of whatever can change the result of a run: the code, and the libraries beneath it."""

import platform
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path

CODE = "lockstep's code"
_LIBRARIES = ("numpy", "pandas", "scikit-learn", "scipy", "simpy", "torch", "torchvision")
# Of analysis what makes rows of records: pictures, reports and timelines change no metric.
_ROOMS = (
    *("scenarios/*.py", "job/*.py", "strategies/**/*.py", "workloads/**/*.py", "workloads/*.csv"),
    *(
        f"analysis/{name}.py"
        for name in (
            *("records", "order", "metrics", "breakdown", "utilisation", "table"),
            *("bottleneck", "bottleneck_words", "computations", "flat", "memory"),
        )
    ),
)


@cache
def version(engine: str) -> dict[str, str]:
    """The hash of the source files that runs of this engine depend on (CODE), and the libraries' versions."""
    root, digest = Path(__file__).parents[1], sha256()
    for pattern in (*_ROOMS, f"{engine}/**/*.py"):
        for file in sorted(root.glob(pattern)):
            digest.update(f"{file.relative_to(root).as_posix()} ".encode() + file.read_bytes())
    libraries = {name: metadata.version(name) for name in _LIBRARIES}
    return {CODE: digest.hexdigest()[:12], "python": platform.python_version()} | libraries
