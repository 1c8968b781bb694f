"""Extreme values: whatever a scenario says is refused with one message, or gives finite numbers, soon."""

import json
import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given
from hypothesis import strategies as st
from pydantic import ValidationError

import lockstep
from lockstep import Scenario, ScenarioError, work
from lockstep.scenarios.errors import translated
from lockstep.scenarios.section import Section
from lockstep.scenarios.units import FLOP_RATE, PRICE, RATE, SIZE, TIME
from lockstep.simulator.errors import SimulationError
from lockstep.strategies import STRATEGIES
from lockstep.strategies.bounds import Bound, optional
from tests.support import ROOT
from tests.support.nightly import examples

SOON_S = 5.0  # what is estimated to take longer is asked about, not run
Path = tuple[str | int, ...]
# The ends of every bound that a number has in scenarios/, what lies beyond, and what does not.
WHOLE: list[Any] = [0, 1, 2, 7, 300, 10**9, 10**15, 2**62]
NUMBERS: list[Any] = [*WHOLE, 5e-324, 1e-6, 0.01, 1 - 1e-16, 1 + 1e-15, 100.0, 1e6, 1e24, 1.7e308]
QUANTITIES = [
    f"{value!r} {kind.unit}"
    for kind in (TIME, RATE, SIZE, FLOP_RATE, PRICE)
    for value in (*kind.bounds, 0.0, 5e-324, 1.0, math.sqrt(kind.bounds[0] * kind.bounds[1]))
]
CROWDED = ("workers", "count", "copies", "groups", "flows")  # an object for each: 300 are enough here
BASE: dict[str, Any] = {
    "name": "extreme",
    "cluster": {
        "workers": 4,
        "workers_per_host": 2,
        "price": "3 USD/h",
        "servers": {
            "count": 2,
            "price": "1 USD/h",
            "speed": 2.0,
            "shares": [1.0, 2.0],
            "hierarchy": {"groups": 2, "fan_out": 2},
        },
        "compute": {"time": {"distribution": "lognormal", "mean": "30 ms", "cv": 0.2}, "backward": 0.5},
        "cores_per_host": 1,
        "memory_bandwidth": "10 GB/s",
        "apply_overhead": "10 us",
        "pass_overhead": "10 us",
        "exchange_overhead": "10 us",
        "codecs": {"int8": {"encode": "1 GB/s", "decode": "1 GB/s"}},
        "stragglers": [
            {"worker": 0, "slowdown": 3.0},
            {"host": 1, "slowdown": 2.0, "probability": 0.5},
            {"slowdown": 2.0, "spells": {"every": "1 s", "last": "100 ms"}},
            {"rack": 0, "slowdown": 2.0, "period": "1 s", "busy": "100 ms", "offset": "10 ms"},
        ],
        "detect": "2 s",
        "storage": {"write": "1 GB/s", "read": "1 GB/s"},
        "network": {
            "bandwidth": "1 Gbit/s",
            "latency": "50 us",
            "message_overhead": "5 us",
            "receive_overhead": "5 us",
            "goodput": 0.95,
            "queue": "64 KiB",
            "processing": {
                "overheads": "8 us",
                "update": "9 us",
                "per_message": "50 us",
                "per_byte": "5 ns",
                "per_large_message": "20 us",
                "large": "6 kB",
                "cold": "400 us",
                "cold_after": "10 ms",
                "gradient": "1 ms",
                "cores": 2,
            },
            "server_bandwidth": "1 Gbit/s",
            "burst": {"size": "64 KiB", "line_rate": "2 Gbit/s", "train": "5792 B", "first": "8128 B"},
            "jitter": {"deviation": "20 us", "draw": 1},
            "cards": [{"hosts": [0], "bandwidth": "1 Gbit/s"}],
            "intra_host": {"bandwidth": "10 GB/s", "latency": "1 us"},
            "topology": {"kind": "racks", "hosts_per_rack": 1, "oversubscription": 2.0, "latency": "5 us"},
            "varying": [
                {
                    "links": "*up-link",
                    "repeat": "1 s",
                    "schedule": [{"at": "0 s", "factor": 1.0}, {"at": "100 ms", "factor": 0.5}],
                }
            ],
            "background": [
                {"from": 0, "to": 1, "bandwidth": "10 Mbit/s", "flows": 2, "on": "1 s", "off": "1 s"}
            ],
        },
    },
    "workload": {"parameters": 1000, "flops": 1e6, "batch_size": 8, "layers": 3, "activation": "4 kB"},
    "strategy": {"name": "asynchronous"},
    "stop": {"steps": 3, "updates": 20, "time": "100 s"},
    "seed": 3,
}
OTHERS: list[tuple[str, list[Any]]] = [
    (
        "cluster.servers",
        [
            1,
            {"count": 1, "colocated": True, "places": None},
            {"count": 3, "places": [0, 1, 0]},
            {"count": 2, "placement": "by-variable", "split_above": 1000},
        ],
    ),
    (
        "cluster.compute",
        [
            {"peak": "1 TFLOP/s", "efficiency": 0.5},
            {"time": {"distribution": "constant", "value": "30 ms"}},
            {"time": {"distribution": "uniform", "low": "10 ms", "high": "30 ms"}},
            {"time": {"distribution": "exponential", "mean": "30 ms"}},
            {"time": {"distribution": "shifted-exponential", "shift": "1 ms", "mean": "30 ms"}},
            {"time": {"distribution": "gamma", "mean": "30 ms", "cv": 0.5}},
            {"time": {"distribution": "pareto", "mean": "30 ms", "shape": 2.5}},
        ],
    ),
    (
        "cluster.network.topology",
        [
            "star",
            {"kind": "racks", "hosts_per_rack": 1, "uplink": "1 Gbit/s", "latency": "5 us"},
            {"kind": "fat-tree", "hosts_per_leaf": 1, "spines": 2, "link": "1 Gbit/s", "latency": "5 us"},
            {
                "kind": "sites",
                "hosts": [1, 1],
                "bandwidth": "1 Gbit/s",
                "latency": "5 ms",
                "pairs": [{"between": [0, 1], "bandwidth": "1 Gbit/s", "latency": "1 ms"}],
            },
        ],
    ),
    ("cluster.servers", [{"count": 2, "copies": 2}]),
    ("cluster.network.burst", [None]),
    ("cluster.network.queue", ["0 B"]),
    (
        "cluster.network",
        [
            {
                **{"bandwidth": "1 Gbit/s", "latency": "50 us", "jitter": {"deviation": "20 us"}},
                "tcp": {"window": "3 MiB", "initial_window": "14480 B", "idle": "200 ms"},
            }
        ],
    ),
    ("cluster.network.varying", [[]]),
    ("cluster.network.background", [[]]),
    ("cluster.stragglers", [[]]),
    (
        "cluster.faults",
        [
            [
                {"worker": 0, "mtbf": {"distribution": "exponential", "mean": "2 h"}, "back_after": "1 s"},
                {
                    "host": 1,
                    "mtbf": {"distribution": "weibull", "mean": "2 h", "shape": 0.7},
                    "notice": "1 s",
                },
                {"rack": 1, "mtbf": {"distribution": "lognormal", "mean": "2 h", "cv": 1.0}},
                {"worker": 2, "at": "100 ms", "hang_for": "1 s"},
                {"worker": 1, "at": "1 s", "crash": True, "exits_after": "10 ms"},
                {"server": 1, "at": "90 ms", "hang_for": "1 s"},
                {"link": {"host": 0}, "at": "20 ms", "down_for": "1 s"},
                {"partition": [[0], [1]], "at": "20 ms", "down_for": "1 s"},
            ],
            [
                {"workers": {change: of}, "at": "1 s"}
                for change, of in {"add": 2, "join": [0], "remove": [1]}.items()
            ],
        ],
    ),
    ("cluster.cores_per_host", [None]),
    ("cluster.memory", ["80 GB"]),
    (
        "cluster.kinds",
        [[{"name": "a", "count": 4, "speed": 0.5, "memory": "16 GB", "price": 2.5}]],
    ),
    ("stop", [{"steps": 3}, {"updates": 5}, {"time": "1 s"}]),
    (
        "",
        [
            {
                **BASE,
                "workload": {"problem": "quadratic"},
                "stop": {"steps": 3, "target": {"metric": "loss", bound: 0.5}},
            }
            for bound in ("at_least", "at_most")
        ],
    ),
    (
        "workload",
        [
            {"problem": "quadratic", "dimension": 20, "noise": 0.1, "batch_size": 8},
            {"problem": "logistic", "dimension": 20, "density": 0.5, "partition": {"dirichlet": 0.5}},
            {"problem": "embedding", "dimension": 32, "width": 4, "batch_size": 8},
            {
                **{"model": "transformer", "layers": 1, "hidden": 16, "heads": 2, "sequence": 16},
                **{"vocabulary": 40, "batch_size": 4},
            },
            {"task": "tests.support.points:points", "root": str(ROOT), "loaders": 2, "batch_size": 4},
        ],
    ),
    (
        "parallelism",
        [
            {"pipeline": 2, "tensor": 1, "micro_batches": 4, "chunks": 2, "order": "interleaved"},
            {"pipeline": 2, "cut": [1], "order": "gpipe", "recompute": True},
            {"tensor": 4, "redundancy": 2, "sequence": True},
        ],
    ),
    (
        "",
        [
            {
                **BASE,
                "workload": {"dataset": "digits", "batch_size": 32, "partition": {"labels": 2}},
                "stop": {"steps": 3, "epochs": 1, "target_accuracy": 0.5},
            }
        ],
    ),
]
"""Other forms of sections: their keys are tried too."""


def put(document: Any, path: Path, value: Any) -> Any:
    """A copy with `value` at `path`."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(head, int):
        return [put(item, rest, value) if at == head else item for at, item in enumerate(document)]
    return {**document, head: put(document.get(head), rest, value)}


def leaves(document: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """What a document says, and where."""
    if isinstance(document, dict | list):
        for key, inner in document.items() if isinstance(document, dict) else enumerate(document):
            yield from leaves(inner, (*path, key))
    else:
        yield path, document


def numeric(value: Any) -> bool:
    """Whether it is a number, or a quantity."""
    return type(value) in (int, float) or (isinstance(value, str) and value[:1].isdigit())


FORMS = [BASE, *(put(BASE, tuple(path.split(".") if path else ()), o) for path, many in OTHERS for o in many)]
PLACES = [(at, path) for at, form in enumerate(FORMS) for path, value in leaves(form) if numeric(value)]


def test_every_numeric_key_is_tried() -> None:
    tried = {part for at, path in PLACES for part in path}
    for form in FORMS:
        Scenario.model_validate(form)
    assert {key for _, key in numeric_keys(Scenario, set())} - tried == set()


def numeric_keys(model: type[Section], seen: set[type[Section]]) -> Iterator[tuple[str, str]]:
    """Every key of a section, and of those below it, whose value is a number."""
    if model in seen:
        return
    seen.add(model)
    for key, field in model.model_fields.items():
        for part in parts_of(field.annotation):
            if part in (int, float):
                yield model.__name__, field.alias or key
            elif isinstance(part, type) and issubclass(part, Section):
                yield from numeric_keys(part, seen)


def parts_of(kind: Any) -> Iterator[Any]:
    origin = get_origin(kind)
    if origin is None:
        yield kind
    elif origin is Annotated:
        yield from parts_of(get_args(kind)[0])
    elif origin is not Literal:
        for part in get_args(kind):
            yield from parts_of(part)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A form with one to three of its numbers at an extreme."""
    at = draw(st.sampled_from(range(len(FORMS))))
    document = FORMS[at]
    places = [path for form, path in PLACES if form == at]
    for path in draw(st.lists(st.sampled_from(places), min_size=1, max_size=3, unique=True)):
        said = next(value for where, value in leaves(FORMS[at]) if where == path)
        choices = WHOLE if isinstance(said, int) else NUMBERS
        if isinstance(said, str):
            unit = said.split()[1].lstrip("kMGTKmunµi").replace("bit", "B")
            choices = [choice for choice in QUANTITIES if choice.split()[1] == unit]
        if path[-1] in CROWDED:
            choices = [choice for choice in choices if not 300 < choice < 10**9]
        document = put(document, path, draw(st.sampled_from(choices)))
    return document


@pytest.mark.slow
@examples(suppress_health_check=list(HealthCheck))
@given(documents())
def test_extremes_are_refused_or_give_finite_numbers(document: dict[str, Any]) -> None:
    tried(document)


def tried(document: dict[str, Any]) -> None:
    """What `lockstep simulate` does with it, without a terminal."""
    try:
        scenario = valid(document)
        lockstep.check(scenario)
        if work.simulating(scenario).seconds > SOON_S:
            event("asked")
            return
        result = lockstep.simulate(scenario)
    except SimulationError as failed:
        if "cluster.faults[" not in str(failed):
            raise
        event("failed, as it was to")
        return
    except ScenarioError as refused:
        event(f"refused: {refused.key}")
        said = str(refused)
        if not said.isprintable() or len(said) > 600:
            raise
        return
    event("ran")
    assert_finite(json.loads(result.to_json(), parse_constant=pytest.fail))
    for column in ("start", "end"):
        assert np.isfinite(result.records[column]).all()
    assert (result.records["end"] >= result.records["start"]).all()


def valid(document: dict[str, Any]) -> Scenario:
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise translated(error, document) from None


def assert_finite(value: Any) -> None:
    for _, number in leaves(value):
        assert not isinstance(number, float) or math.isfinite(number)


PARAMETERS = [
    (name, key, optional(parameter.annotation)[0].__metadata__[0])
    for name, strategy in STRATEGIES.items()
    for key, parameter in strategy.parameters.items()
    if isinstance(getattr(optional(parameter.annotation)[0], "__metadata__", [None])[0], Bound)
]


@pytest.mark.slow
@examples(suppress_health_check=list(HealthCheck))
@given(st.sampled_from(PARAMETERS), st.sampled_from(NUMBERS), st.booleans(), st.booleans())
def test_extremes_of_strategies(parameter: Any, value: Any, learns: bool, adam: bool) -> None:
    name, key, _ = parameter
    workload = {"problem": "quadratic", "dimension": 20, "batch_size": 8}
    tried(
        {
            "name": "extreme",
            "cluster": {
                "workers": 4,
                "servers": 1,
                "network": {"bandwidth": "1 Gbit/s", "latency": "50 us"},
                "compute": {"time": {"distribution": "lognormal", "mean": "30 ms", "cv": 0.2}},
            },
            "workload": workload if learns else {"parameters": 20},
            "strategy": {"name": name, key: value, **({"optimizer": "adam"} if adam else {})},
            "stop": {"steps": 6, "updates": 50, "time": "100 s"},
        }
    )
