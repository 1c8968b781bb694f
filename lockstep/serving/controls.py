"""The settings of a scenario that the page can change: what each shows, and the scenario that comes of it.

A setting is what a file would have at its key, as text with a unit ("10 Gbit/s"). The strategies say by
themselves which parameters they have, and within which bounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from lockstep import scenarios
from lockstep.analysis.plots.words import scale, words
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.scenarios.stragglers import Persistent
from lockstep.scenarios.units import RATE, TIME_FROM_0, Quantity
from lockstep.strategies.bounds import Bound, Graph, Milestones, described, optional
from lockstep.strategies.graphs import NAMES
from lockstep.strategies.mistakes import StrategyError
from lockstep.strategies.registry import composed, own
from lockstep.strategies.strategy import Strategy

UNLIMITED = "unlimited"
SLOW, SLOWDOWN = "slow workers", "slowdown"  # together they are cluster.stragglers
_POWERS = tuple(str(2**power) for power in range(11))
_TIMES = (
    "1 ms",
    "2 ms",
    "5 ms",
    "10 ms",
    "20 ms",
    "50 ms",
    "100 ms",
    "200 ms",
    "500 ms",
    "1 s",
    "2 s",
    "5 s",
)


@dataclass(frozen=True)
class Control:
    """A setting: its key, what it is called, and the values that its slider steps through.

    `quantity`: what its values are, if they have a unit.
    """

    key: str
    name: str
    steps: tuple[str, ...]
    quantity: Quantity | None = None

    def with_step(self, text: str) -> tuple[str, ...]:
        """The steps of the slider and among them a value, in its place."""
        if text in self.steps or (size := self._size(text)) is None:
            return self.steps
        sizes = [(self._size(step), step) for step in self.steps]
        below = [step for its, step in sizes if its is not None and its < size]
        return (*below, text, *(step for its, step in sizes if its is None or its > size))

    def nearest(self, text: str) -> int:
        """The place of a value on the slider."""
        steps = self.with_step(text)
        return steps.index(text) if text in steps else 0

    def _size(self, text: str) -> float | None:
        try:
            return float(text) if self.quantity is None else self.quantity.parse(text)
        except ValueError:
            return None


_BANDWIDTHS = (
    *(f"{rate} Mbit/s" for rate in (10, 25, 50, 100, 200, 500)),
    *(f"{rate} Gbit/s" for rate in (1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400)),
    UNLIMITED,
)
_LATENCIES = tuple(
    f"{value} {unit}" for unit in ("µs", "ms") for value in (1, 2, 5, 10, 20, 50, 100, 200, 500)
)
_ALL = (
    Control("cluster.workers", "workers", _POWERS),
    Control("cluster.servers.count", "servers", _POWERS[:7]),
    Control("cluster.network.bandwidth", "bandwidth", _BANDWIDTHS, RATE),
    Control("cluster.network.latency", "latency", ("0 s", *_LATENCIES[:-2]), TIME_FROM_0),
    Control("cluster.compute.time.mean", "time of a gradient", _TIMES, TIME_FROM_0),
    Control("cluster.compute.time.value", "time of a gradient", _TIMES, TIME_FROM_0),
    Control("workload.batch_size", "batch size", (*_POWERS, "2048", "4096")),
    Control(SLOW, SLOW, ("0", *_POWERS[:7])),
    Control(SLOWDOWN, "times as slow", ("1", "1.5", "2", "3", "5", "10")),
)
_CONTROLS = {control.key: control for control in _ALL}
_SERVERS = "cluster.servers.count"


@dataclass
class Setting:
    """A scenario, and what has been changed of it."""

    base: Scenario
    values: dict[str, str] = field(default_factory=dict)
    """Of controls, by key, where they are not the base's."""
    strategy: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Of the strategy, and perhaps of others that were looked at before."""

    def __post_init__(self) -> None:
        self.strategy = self.strategy or self.base.strategy.name
        self.parameters = self.parameters or self.base.strategy.parameters

    def copy(self) -> "Setting":
        """Another, to be changed by itself."""
        return Setting(self.base, dict(self.values), self.strategy, dict(self.parameters))

    @property
    def program(self) -> Strategy:
        """The strategy, with the factors that it takes from others."""
        return composed(self.strategy, self.parameters)

    @property
    def controls(self) -> list[Control]:
        """Those that mean something here."""
        given = [control for control in _ALL if given_text(self.base, control.key) is not None]
        return [each for each in given if each.key != _SERVERS or self.program.has_servers]

    def text(self, key: str) -> str:
        """What a control shows."""
        return self.values.get(key, given_text(self.base, key) or "")

    def set(self, key: str, text: str) -> None:
        """Change a control; to what the base has is no change."""
        self.values.pop(key, None)
        if text != given_text(self.base, key):
            self.values[key] = text

    @property
    def knobs(self) -> "list[Knob]":
        """The strategy's parameters that mean something beside the others; its own first."""
        program = self.program
        given = {name: p.default for name, p in program.parameters.items()} | self.parameters
        idle = {
            name
            for name, marks in program.belongings.items()
            if all(given[mark.key] not in mark.values for mark in marks)
        }
        first = program.own_parameters
        names = [*first, *(name for name in program.parameters if name not in first)]
        return [
            Knob(name, program.parameters[name].annotation, program.parameters[name].default, name in first)
            for name in names
            if name not in idle
        ]

    def turn(self, name: str, value: Any) -> None:
        """Change a parameter of the strategy; None: to its default."""
        self.parameters.pop(name, None)
        if value is not None:
            self.parameters[name] = value

    @property
    def scenario(self) -> Scenario:
        """What comes of it. Raises ScenarioError, with the key."""
        try:
            parameters = own(self.strategy, self.parameters)
        except StrategyError as error:
            raise ScenarioError(error.problem, error.key) from None
        changes: dict[str, Any] = {}
        if (self.strategy, parameters) != (self.base.strategy.name, self.base.strategy.parameters):
            changes["strategy"] = {"name": self.strategy, **parameters}
        for key, text in self.values.items():
            if key not in (SLOW, SLOWDOWN):
                changes[key] = _value(_CONTROLS[key], text)
        if {SLOW, SLOWDOWN, "cluster.workers"} & self.values.keys() and self.text(SLOW):
            changes["cluster.stragglers"] = self._stragglers(changes)
        return scenarios.changing(self.base).changed(changes) if changes else self.base

    def _stragglers(self, changes: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The last workers are the slow ones."""
        workers = changes.get("cluster.workers", self.base.cluster.workers)
        slow, slowdown = (_number(_CONTROLS[key], self.text(key)) for key in (SLOW, SLOWDOWN))
        if not 0 <= slow <= workers or slow != int(slow):
            raise ScenarioError(f"must be a whole number from 0 to the {workers} workers, not {slow:g}", SLOW)
        last = range(workers - int(slow), workers)
        return [{"worker": worker, "slowdown": slowdown} for worker in last if slowdown != 1]


@dataclass(frozen=True)
class Knob:
    """A parameter of a strategy: its name, what it may be, its default, and whether it is its own."""

    name: str
    annotation: Any
    default: Any
    special: bool

    @property
    def choices(self) -> list[Any] | None:
        """All that it may be, if it is one of a few; None: a number or a text."""
        kind, may_be_none = optional(self.annotation)
        if kind is bool:
            return [False, True]
        if kind == Graph:
            return list(NAMES)
        if get_origin(kind) is Literal:
            return [*([None] if may_be_none else []), *get_args(kind)]
        return None

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return not self.is_list and self.choices is None and get_args(optional(self.annotation)[0])[0] is int

    @property
    def is_list(self) -> bool:
        """Whether it is a list of numbers."""
        return bool(optional(self.annotation)[0] == Milestones)

    @property
    def bound(self) -> Bound:
        """Within which bounds a number may be."""
        found = [each for each in get_args(optional(self.annotation)[0]) if isinstance(each, Bound)]
        return found[0] if found else Bound()

    @property
    def hint(self) -> str:
        """What is valid, and the default, in words."""
        default = str(self.default).lower() if isinstance(self.default, bool) else self.default
        usual = "" if self.default is None else f"; default {default}"
        return f"{described(optional(self.annotation)[0])}{usual}"


def given_text(scenario: Scenario, key: str) -> str | None:
    """What a control shows of a scenario; None where it has no such setting."""
    if key in (SLOW, SLOWDOWN):
        return _of_stragglers(scenario)[key == SLOWDOWN]
    node: Any = scenario
    for word in key.split("."):
        if node is None or isinstance(node, str) or not hasattr(node, word):
            return None
        node = getattr(node, word)
    if key == "cluster.network.bandwidth" and node is None:
        return UNLIMITED
    if node is None or isinstance(node, str):
        return None
    return shown(key, node)


def shown(key: str, value: float) -> str:
    """A value in base units, as a file would have it and people read it."""
    if _CONTROLS[key].quantity is None:
        return f"{value:g}"
    its = scale(key, [value])
    unit = its.unit if value else "s"
    return f"{value * its.factor:.6g} {unit}"


def title(knob: Knob) -> str:
    """What a parameter of a strategy is called."""
    return words(f"strategy.{knob.name}")


def _of_stragglers(scenario: Scenario) -> Sequence[str | None]:
    """How many workers are always so much slower, if that is all that is slow."""
    items = scenario.cluster.stragglers
    plain = [each for each in items if isinstance(each, Persistent) and each.worker is not None]
    slowdowns = {each.slowdown for each in plain}
    if len(plain) < len(items) or len(slowdowns) > 1:
        return None, None
    return str(len(items)), f"{slowdowns.pop():g}" if slowdowns else "2"


def _value(control: Control, text: str) -> Any:
    """What a file would have."""
    if control.quantity is not None:
        return None if text.strip() == UNLIMITED else text.strip()
    return int(_number(control, text)) if _number(control, text) % 1 == 0 else _number(control, text)


def _number(control: Control, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ScenarioError(f"{text!r} is not a number", control.name) from None
