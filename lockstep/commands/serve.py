"""`lockstep serve`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from lockstep.commands.options import Set, Trust, load
from lockstep.scenarios import ScenarioError

Source = Annotated[
    str,
    typer.Argument(metavar="FILE|DIR", help="A scenario to play with, or a folder of results to look at."),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Where it listens; 0: any port that is free.")]
Open = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]


def serve(
    source: Source = "quickstart",
    set_: Set = None,
    port: Port = 0,
    open_: Open = False,
    trust: Trust = False,
) -> None:
    """Serve a local page to play with.

    Of a scenario, predictions that follow sliders; of a folder, its runs in a table with filters.
    """
    if find_spec("nicegui") is None:
        raise ScenarioError("NiceGUI is not installed; pip install 'lockstep[serve]'")
    path = Path(source)
    if path.is_dir() or path.suffix == ".parquet":
        if set_:
            raise ScenarioError("a folder has results, which nothing changes; leave it out", key="--set")
        from lockstep.serving.runs_page import of_folder

        page, title = of_folder(path), path.name
    else:
        from lockstep.serving.page import of_scenario

        scenario = load(source, set_ or [], testbed=False)
        folder = path.parent if path.is_file() else Path()
        page, title = of_scenario(scenario, folder), scenario.name
    from lockstep.serving import worker
    from lockstep.serving.server import serve

    worker.load()
    serve(page, f"Lockstep: {title}", port, open_)
