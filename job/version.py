"""The version of whatever can change the result of a run: the code, and the libraries beneath it."""

import platform
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path

CODE = "lockstep's code"
_HERE = Path(__file__).parents[1]
_LIBRARIES = ("numpy", "pandas", "scikit-learn", "scipy", "simpy", "torch", "torchvision")
# Of analysis what makes rows of records: pictures, reports and timelines change no metric.
_ROOMS = (
    *("scenarios/*.py", "job/*.py", "strategies/**/*.py", "workloads/**/*.py", "workloads/*.csv"),
    *(
        f"analysis/{name}.py"
        for name in (
            *("records", "order", "metrics", "breakdown", "by_rank", "utilisation", "table", "curve"),
            *("bottleneck", "bottleneck_words", "computations", "flat", "memory", "cost", "given"),
            *("losses", "median", "result"),
        )
    ),
)


@cache
def version(engine: str) -> dict[str, str]:
    """The hash of the source files that runs of this engine depend on (CODE), and the libraries' versions."""
    libraries = {name: metadata.version(name) for name in _LIBRARIES}
    return {CODE: _code(*_ROOMS, f"{engine}/**/*.py"), "python": platform.python_version()} | libraries


def whole_code() -> str:
    """The hash of all of our source files: who exchanges messages and files has the same."""
    return _code("*.py", *(f"{room.name}/**/*.py" for room in sorted(_HERE.iterdir()) if room.is_dir()))


def _code(*patterns: str) -> str:
    digest = sha256()
    for pattern in patterns:
        for file in sorted(_HERE.glob(pattern)):
            digest.update(f"{file.relative_to(_HERE).as_posix()} ".encode() + file.read_bytes())
    return digest.hexdigest()[:12]
