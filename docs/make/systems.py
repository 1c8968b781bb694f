"""The tables and pictures of docs/systems.md, which come of running: `systems.py` writes them there."""

from pathlib import Path

from PIL import Image

import lockstep
from lockstep.analysis.plots import style
from lockstep.analysis.plots.gantt import gantt
from lockstep.scenarios import override
from lockstep.studies.accuracy_suite.tables import between_markers
from lockstep.studies.systems import SYSTEMS, page

PAGE = Path(__file__).parent.parent / "systems.md"
NAME = "docs/make/systems.py"
TABLES = {"overview": page.overview, "sections": page.sections, "published": page.published}


def pictures() -> None:
    """A picture for each system: its first iterations, without a warm start, in which only one works."""
    for system in SYSTEMS:
        config = lockstep.load(system.scenario)
        if "warm_start" in config.strategy.parameters:
            config = override(config, "strategy.warm_start", 0)
        figure = gantt([lockstep.simulate(config)], iterations=2)
        (file,) = style.save(figure, PAGE.with_suffix("") / system.scenario.rpartition("/")[2], ("png",))
        with Image.open(file) as whole:
            whole.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    for name, make in TABLES.items():
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(between_markers(text, make(), f"{NAME} {name}"), encoding="utf-8")
    pictures()
