"""The controls of a setting on the page: sliders with a text beside them, and the strategy's parameters."""

from collections.abc import Callable
from typing import Any

from nicegui import ui

from lockstep.serving.controls import Control, Knob, Setting, title
from lockstep.strategies.registry import STRATEGIES

Changed = Callable[[], None]


class Controls:
    """The controls of one setting; `changed` is called after each change."""

    def __init__(self, name: str, setting: Setting, changed: Changed) -> None:
        self.name, self.setting, self._changed = name, setting, changed

    @ui.refreshable_method
    def show(self) -> None:
        """Build them."""
        for control in self.setting.controls:
            self._slider(control)
        chosen = ui.select(
            list(STRATEGIES), value=self.setting.strategy, label="strategy", with_input=True,
            on_change=lambda event: self._choose(event.value),
        )  # fmt: skip
        chosen.props(f'dense outlined hide-bottom-space aria-label="{self.name}: strategy"')
        chosen.classes("w-full mt-2")
        ui.label(STRATEGIES[self.setting.strategy].summary).classes("text-xs opacity-70")
        knobs = self.setting.knobs
        for knob in knobs:
            if knob.special:
                self._knob(knob)
        if not all(knob.special for knob in knobs):
            with ui.expansion("optimizer, codec and more").props("dense").classes("w-full"):
                for knob in knobs:
                    if not knob.special:
                        self._knob(knob)

    def _slider(self, control: Control) -> None:
        steps, text = control.with_step(self.setting.text(control.key)), self.setting.text(control.key)
        label = f"{self.name}: {control.name}"
        with ui.column().classes("w-full gap-0"):
            with ui.row().classes("w-full items-center justify-between no-wrap"):
                ui.label(control.name).classes("text-sm")
                shown = ui.input(value=text).props(
                    f'dense borderless input-class="text-right" aria-label="{label}"'
                )
                shown.classes("w-28")
            slider = ui.slider(min=0, max=len(steps) - 1, step=1, value=control.nearest(text))
            slider.props(f'aria-label="{label}, slider" snap').classes("px-1 -mt-2")

        def slid() -> None:
            shown.value = steps[int(slider.value or 0)]
            if shown.value != self.setting.text(control.key):
                self.setting.set(control.key, shown.value)
                self._changed()

        def written() -> None:
            if shown.value != self.setting.text(control.key):
                self.setting.set(control.key, shown.value)
                self.show.refresh()
                self._changed()

        slider.on_value_change(slid)
        shown.on("blur", written)
        shown.on("keydown.enter", written)

    def _choose(self, strategy: str | None) -> None:
        if strategy is None:  # its text is being written
            return
        self.setting.strategy = strategy
        self.show.refresh()
        self._changed()

    def _turn(self, knob: Knob, value: Any) -> None:
        if isinstance(value, float) and knob.whole and value == int(value):
            value = int(value)
        if knob.is_list and value is not None:
            value = [int(part) if part.strip().isdigit() else part for part in value.split(",")] or None
        before = [each.name for each in self.setting.knobs]
        self.setting.turn(knob.name, None if value in ("", []) else value)
        if [each.name for each in self.setting.knobs] != before:
            self.show.refresh()
        self._changed()

    def _knob(self, knob: Knob) -> None:
        value = self.setting.parameters.get(knob.name, knob.default)
        label, choices = title(knob), knob.choices
        named = f'aria-label="{self.name}: {label}"'

        def turned(event: Any) -> None:
            self._turn(knob, event.value)

        if choices == [False, True]:
            ui.switch(label, value=bool(value), on_change=turned).props(f"dense {named}")
        elif choices is not None:
            options = {each: "not given" if each is None else str(each) for each in choices}
            shown = value if value in options else choices[0]
            ui.select(options, value=shown, label=label, on_change=turned).props("dense").classes("w-full")
        elif knob.is_list:
            text = ", ".join(map(str, value or ()))
            ui.input(label, value=text, on_change=turned).props("dense debounce=400").classes("w-full")
        else:
            field = ui.number(label, value=value, placeholder="by default", on_change=turned)
            step = 1 if knob.whole else "any"
            field.props(f'dense debounce=300 step={step} hide-bottom-space {named} hint="{knob.hint}"')
            field.classes("w-full")
