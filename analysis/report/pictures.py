"""The pictures of a report: those of `analysis.plots` that suit what there is."""

from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from analysis import saved
from analysis.report.gather import Gathered


class Picture(NamedTuple):
    """A heading, the picture as a data URI, and what is in it for those who cannot see it."""

    title: str
    source: str
    alt: str


def pictures(gathered: Gathered) -> list[Picture]:
    """All that can be drawn of what was gathered."""
    if gathered.kind == "validation":
        return [_validation(gathered)]
    return []


def _validation(gathered: Gathered) -> Picture:
    from analysis.plots import predicted_and_measured

    names = [c["measured"]["strategy"] for c in gathered.comparisons]
    pairs = [
        tuple(saved.load(gathered.folder / name / side) for side in ("predicted", "measured"))
        for name in names
    ]
    with TemporaryDirectory() as folder:
        _, svg = predicted_and_measured(pairs, Path(folder) / "picture")  # type: ignore[arg-type]
        return Picture(
            "Predicted and measured", _uri(svg.read_bytes()), "Predicted and measured, side by side."
        )


def _uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + b64encode(svg).decode()
