"""The page of a folder of results: its runs as a table with filters; a click shows one of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nicegui import ui

from lockstep.analysis.words import count
from lockstep.serving import runs, show
from lockstep.serving.prediction import Picture
from lockstep.serving.worker import Worker

_HEAD, _ROW = 130, 42  # pixels of the table


def of_folder(path: Path) -> Callable[[], None]:
    """What fills the page. Raises ScenarioError if there are no runs."""
    shelf = runs.read(path)
    return lambda: _Page(path, shelf).build()


class _Page:
    def __init__(self, path: Path, shelf: runs.Shelf) -> None:
        self._path, self._shelf = path, shelf
        self._worker = Worker(self._told)
        self._chosen: dict[str, Any] | None = None
        self._found: list[Any] = []

    def build(self) -> None:
        """Everything, once."""
        ui.add_css(show.CSS)
        table = self._shelf.table
        with ui.row().classes("w-full items-baseline gap-x-3 gap-y-0"):
            ui.label("Lockstep").classes("text-xl font-medium")
            ui.label(f"{self._path}: {count(len(table), 'run')}").classes("text-lg opacity-70")
        ui.label("Click a run to see its metrics and pictures; type below a heading to filter.").classes(
            "text-sm opacity-70"
        )
        grid = ui.aggrid(
            {
                "columnDefs": [
                    {
                        "headerName": column.heading,
                        "field": f"c{number}",
                        "filter": "agNumberColumnFilter" if column.numeric else "agTextColumnFilter",
                        "type": "numericColumn" if column.numeric else None,
                        "wrapHeaderText": True,
                        "autoHeaderHeight": True,
                        "minWidth": 135 if column.numeric else 160,
                    }
                    for number, column in enumerate(runs.columns(table))
                ],
                "defaultColDef": {"floatingFilter": True, "sortable": True, "resizable": True, "flex": 1},
                "rowData": self._cells(),
                "rowSelection": {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True},
            },
            auto_size_columns=False,
        )
        height = f"{_HEAD + _ROW * len(table)}px"
        grid.style(f"height: {height}; max-height: 50vh; min-height: 14rem").classes("w-full")
        grid.on("cellClicked", self._choose, ["data"])
        self._one()
        ui.context.client.on_delete(self._worker.stop)

    def _cells(self) -> list[dict[str, Any]]:
        """Fields have numbers for names: a dot in one would be a path."""
        places = [column.key for column in runs.columns(self._shelf.table)]
        return [
            {"place": row["place"]} | {f"c{number}": row[key] for number, key in enumerate(places)}
            for row in runs.rows(self._shelf.table)
        ]

    def _choose(self, event: Any) -> None:
        place = int(event.args["data"]["place"])
        self._chosen, self._found = runs.rows(self._shelf.table)[place], []
        self._worker.ask(runs.describe, self._shelf, place)
        self._one.refresh()

    def _told(self, message: Any) -> None:
        if isinstance(message, dict | Picture | Exception):
            self._found.append(message)
            self._one.refresh()

    @ui.refreshable_method
    def _one(self) -> None:
        if self._chosen is None:
            return
        engine = self._chosen["engine"]
        run = self._shelf.table.iloc[self._chosen["place"]]
        name = ", ".join(str(run[key]) for key in ("folder", "name", "strategy.name") if key in run)
        with ui.card().props("flat bordered").classes("w-full mt-2"):
            ui.label(f"{str(engine).capitalize()}: {name}").classes("text-lg font-medium")
            with ui.element("div").classes("flex flex-wrap w-full gap-4 items-start"):
                for each in self._found:
                    wide = isinstance(each, Picture) and each.wide
                    with ui.column().style(f"flex: 1 1 {'100%' if wide else '20rem'}; min-width: 0"):
                        if isinstance(each, Picture):
                            show.picture(each, each.name)
                        elif isinstance(each, Exception):
                            show.problem(str(each))
                        else:
                            show.table(each)
