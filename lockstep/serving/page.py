"""The page of a scenario: settings A and B, what is predicted of each, and what differs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nicegui import ui

from lockstep.analysis.differences import Pair
from lockstep.scenarios import Scenario
from lockstep.serving import show
from lockstep.serving.controls import Setting
from lockstep.serving.prediction import Picture, compare
from lockstep.serving.side import Side, copied
from lockstep.serving.worker import Worker


def of_scenario(scenario: Scenario, folder: Path) -> Callable[[], None]:
    """What fills the page for somebody who looks at it; `folder`: of files that a pasted YAML names."""
    return lambda: _Page(scenario, folder).build()


class _Page:
    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self._scenario = scenario
        self._a = Side("A", Setting(scenario), folder, self._compare)
        self._b: Side | None = None
        self._comparer = Worker(self._told)
        self._found: list[Any] = []

    @property
    def _sides(self) -> list[Side]:
        return [self._a] if self._b is None else [self._a, self._b]

    def build(self) -> None:
        """Everything, once."""
        ui.add_css(show.CSS)
        with ui.row().classes("w-full items-baseline gap-x-3 gap-y-0"):
            ui.label("Lockstep").classes("text-xl font-medium")
            ui.label(self._scenario.name).classes("text-lg opacity-70")
        self._everything()
        ui.context.client.on_delete(self._stop)
        self._a.changed()

    @ui.refreshable_method
    def _everything(self) -> None:
        with ui.element("div").classes("flex flex-wrap w-full gap-4 items-start"):
            for side in self._sides:
                self._column(side)
        self._difference()

    def _column(self, side: Side) -> None:
        alone = self._b is None
        with ui.card().props("flat bordered").style("flex: 1 1 20rem; min-width: 0; max-width: 100%"):
            with ui.row().classes("w-full items-center justify-between"):
                ui.label("Setting A" if side is self._a else "Setting B").classes("text-lg font-medium")
                with ui.row().classes("gap-1"):
                    ui.button("YAML", on_click=side.yaml).props(
                        f'dense no-caps flat aria-label="{side.name}: YAML"'
                    )
                    if side is self._b:
                        ui.button("Remove B", on_click=self._remove).props("dense no-caps flat")
                    elif alone:
                        ui.button("Compare with B", on_click=self._add).props("dense no-caps flat")
            side.show(beside=not alone)

    @ui.refreshable_method
    def _difference(self) -> None:
        if self._b is None or not self._found:
            return
        with ui.card().props("flat bordered").classes("w-full mt-4"):
            ui.label("What differs, and what that does (predicted)").classes("text-lg font-medium")
            for each in self._found:
                if isinstance(each, Pair):
                    show.difference(each)
                elif isinstance(each, Picture):
                    show.picture(each, "From the time of a step of A to that of B")

    def _add(self) -> None:
        self._b = copied(self._a, "B", self._compare)
        self._everything.refresh()
        self._b.changed()

    def _remove(self) -> None:
        if self._b is not None:
            self._b.stop()
        self._b, self._found = None, []
        self._comparer.stop()
        self._everything.refresh()

    def _compare(self) -> None:
        predictions = [side.prediction for side in self._sides]
        self._found = []
        if len(predictions) == 2 and all(predictions):
            first, second = (each.row for each in predictions if each is not None)
            self._comparer.ask(compare, first, second)
        self._difference.refresh()

    def _told(self, message: Any) -> None:
        if isinstance(message, Pair | Picture):
            self._found.append(message)
            self._difference.refresh()

    def _stop(self) -> None:
        self._comparer.stop()
        for side in self._sides:
            side.stop()
