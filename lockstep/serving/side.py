"""One of the settings that stand side by side: its controls, its prediction, what it learns, its YAML."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nicegui import ui

import lockstep
from lockstep import scenarios
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import Written
from lockstep.serving import show
from lockstep.serving.controls import Setting
from lockstep.serving.prediction import Picture, Prediction, learn, predict
from lockstep.serving.widgets import Controls
from lockstep.serving.worker import DONE, Worker


class Side:
    """A setting on the page; `predicted` is called when the numbers of another prediction are there."""

    def __init__(self, name: str, setting: Setting, folder: Path, predicted: Callable[[], None]) -> None:
        self.name, self.folder, self._predicted = name, folder, predicted
        self.controls = Controls(name, setting, self.changed)
        self.worker, self.learner = Worker(self._told), Worker(self._learned)
        self.prediction: Prediction | None = None
        self.problem = ""
        self._busy = False
        self._gantt: Picture | None = None
        self._done: float | None = None  # of what is being learned
        self._share = 0.0  # of what is being predicted
        self._found: list[Any] = []

    @property
    def setting(self) -> Setting:
        """What the controls say."""
        return self.controls.setting

    def changed(self) -> None:
        """Predict anew, and forget what was learned: it is of other settings."""
        self.learner.stop()
        self._done, self._found, self.problem = None, [], ""
        try:
            scenario = self.setting.scenario
        except ScenarioError as error:
            self.worker.stop()
            self._fail(error)
            return
        self._busy, self._share = True, 0.0
        self.worker.ask(predict, scenario)
        self._refresh()
        self._learning.refresh()

    def stop(self) -> None:
        """End its processes."""
        self.worker.stop()
        self.learner.stop()

    def _refresh(self) -> None:
        self._head.refresh()
        self._details.refresh()

    def _fail(self, error: Exception) -> None:
        self._busy, self.prediction, self._gantt = False, None, None
        self.problem = str(error)
        self._refresh()
        self._pictures.refresh()
        self._learning.refresh()
        self._predicted()

    def _told(self, message: Any) -> None:
        if isinstance(message, Exception):
            self._fail(message)
        elif isinstance(message, float):
            self._share = message
            self._head.refresh()
        elif isinstance(message, Prediction):
            self._busy, self.prediction = False, message
            self._refresh()
            self._predicted()
        elif isinstance(message, Picture):
            self._gantt = message
            self._pictures.refresh()

    def _learned(self, message: Any) -> None:
        if isinstance(message, float):
            self._done = message
            self._bar.set_value(message)
            return
        if message is DONE or isinstance(message, Exception):
            self._done = None
        if message is not DONE:
            self._found.append(message)
        self._learning.refresh()

    def show(self, beside: bool) -> None:
        """Controls, numbers and pictures; `beside`: another one."""
        with ui.element("div").classes("lockstep-side" + " lockstep-two" * beside):
            with ui.column().classes("lockstep-controls gap-1"):
                self.controls.show()
            with ui.column().classes("lockstep-head gap-1"):
                self._head()
            with ui.column().classes("lockstep-details gap-2"):
                self._details()
            with ui.column().classes("lockstep-pictures gap-2"):
                self._pictures()
                self._learning()

    @ui.refreshable_method
    def _head(self) -> None:
        """What people look for first, or what is wrong."""
        if self.problem:
            show.problem(self.problem)
            return
        if self._busy and (self._share or self.prediction is None):
            share = f" {self._share:.0%}" if self._share else ""
            ui.label(f"Predicting …{share}").classes("opacity-70")
        if self.prediction is not None:
            with ui.column().classes("w-full gap-1" + " opacity-40" * self._busy):
                show.headline(self.prediction)

    @ui.refreshable_method
    def _details(self) -> None:
        if self.prediction is not None and not self.problem:
            with ui.column().classes("w-full gap-2" + " opacity-40" * self._busy):
                show.details(self.prediction)

    @ui.refreshable_method
    def _pictures(self) -> None:
        """What everybody does in the first iterations."""
        if self._gantt is not None:
            ui.label("Predicted: what everybody does in the first iterations").classes("text-sm font-medium")
            show.picture(self._gantt, "Gantt chart of the first iterations")

    @ui.refreshable_method
    def _learning(self) -> None:
        """A button that starts the real gradients, how far they are, and what came of them."""
        if self.problem or not self.setting.base.workload.learns:
            return
        ui.label("Predicted: what it learns").classes("text-sm font-medium")
        if self._done is None:
            ui.label(
                "The whole run in virtual time, with its real gradients: "
                "as long as 'lockstep simulate' takes."
            ).classes("text-xs opacity-70")
            ui.button("Simulate learning", on_click=self._learn).props("dense no-caps outline")
        else:
            with ui.row().classes("w-full items-center no-wrap"):
                self._bar = ui.linear_progress(self._done, show_value=False).props("instant-feedback")
                ui.button("Stop", on_click=self._stop_learning).props("dense no-caps flat")
        for message in self._found:
            if isinstance(message, Exception):
                show.problem(str(message))
            elif isinstance(message, Prediction):
                show.cards(message.learned)
            else:
                show.picture(message, "Held-out loss against time")

    def _learn(self) -> None:
        self._done, self._found = 0.0, []
        self.learner.ask(learn, self.setting.scenario)
        self._learning.refresh()

    def _stop_learning(self) -> None:
        self.learner.stop()
        self._done = None
        self._learning.refresh()

    def yaml(self) -> None:
        """A window with the setting as YAML, to copy, or to be replaced by another."""
        try:
            text = scenarios.dump(self.setting.scenario)
        except ScenarioError as error:
            ui.notify(str(error), type="negative", multi_line=True)
            return
        with ui.dialog() as dialog, ui.card().classes("w-full").style("max-width: 50rem"):
            ui.label(f"{self.name} as YAML").classes("text-lg")
            field = ui.textarea(value=text).props(
                f'outlined input-style="height: 50vh; font-family: monospace; font-size: 12px" '
                f'aria-label="{self.name} as YAML"'
            )
            field.classes("w-full")
            wrong = ui.column().classes("w-full")

            def open_this() -> None:
                try:
                    self.open(field.value)
                except ScenarioError as error:
                    wrong.clear()
                    with wrong:
                        show.problem(str(error))
                else:
                    dialog.close()

            def copy() -> None:
                ui.clipboard.write(field.value)
                ui.notify("Copied.")

            with ui.row():
                ui.button("Copy", on_click=copy).props("no-caps")
                ui.button("Open this YAML", on_click=open_this).props("no-caps outline")
                ui.button("Close", on_click=dialog.close).props("no-caps flat")
        dialog.on("hide", dialog.delete)
        dialog.open()

    def open(self, text: str) -> None:
        """Take the scenario of a text. Code that it names has to lie in the current folder, or be trusted.

        Raises ScenarioError: what is wrong with it, and where.
        """
        written = Written(text, self.folder)
        scenario = scenarios.load(written, (), lockstep.check, alone=True, beside=False)
        self.controls.setting = Setting(scenario)
        self.controls.show.refresh()
        self.changed()


def copied(side: Side, name: str, predicted: Callable[[], None]) -> Side:
    """Another side with the same setting."""
    base = side.setting
    setting = replace(base, values=dict(base.values), parameters=dict(base.parameters))
    return Side(name, setting, side.folder, predicted)
