"""The JSON Schema of a scenario file, the strategies and their parameters included."""

from typing import Any, Literal, get_args, get_origin

from lockstep.scenarios import Scenario
from lockstep.scenarios.renamed import RENAMED
from lockstep.strategies import STRATEGIES, graphs
from lockstep.strategies.bounds import Graph, Milestones, optional
from lockstep.strategies.strategy import FACTORS

_KEYWORDS = {"ge": "minimum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum", "le": "maximum"}


def json_schema() -> dict[str, Any]:
    """What `lockstep schema` prints, for editors to complete and check scenario files with."""
    schema = Scenario.model_json_schema()
    schema["$defs"]["Strategy"] = {
        "description": "How the workers cooperate: a strategy's name, or its name and parameters.",
        "oneOf": [{"enum": list(STRATEGIES)}, *(_strategy(name) for name in STRATEGIES), _composed()],
    }
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def _strategy(name: str) -> dict[str, Any]:
    parameters = STRATEGIES[name].parameters
    return {
        "type": "object",
        "properties": {
            "name": {"const": name},
            **{key: {**_values(p.annotation), "default": p.default} for key, p in parameters.items()},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def _composed() -> dict[str, Any]:
    """A strategy that takes a factor from another, with parameters of either."""
    served = {name: strategy for name, strategy in STRATEGIES.items() if strategy.has_servers}
    parameters = {key: p for strategy in served.values() for key, p in strategy.parameters.items()}
    return {
        "type": "object",
        "properties": {
            **{key: {"enum": list(served)} for key in ("name", *FACTORS)},
            **{key: {"enum": list(served), "deprecated": True} for key in RENAMED},
            **{key: _values(p.annotation) for key, p in parameters.items()},
        },
        "required": ["name"],
        "anyOf": [{"required": [factor]} for factor in (*FACTORS, *RENAMED)],
        "additionalProperties": False,
    }


def _values(annotation: Any) -> dict[str, Any]:
    annotation, may_be_none = optional(annotation)
    if may_be_none:
        return {"anyOf": [_values(annotation), {"type": "null"}]}
    if annotation is bool:
        return {"type": "boolean"}
    if get_origin(annotation) is Literal:
        return {"enum": list(get_args(annotation))}
    if annotation == Graph:
        worker = {"type": "integer", "minimum": 0}
        edge = {"type": "array", "items": worker, "minItems": 2, "maxItems": 2, "uniqueItems": True}
        return {"oneOf": [{"enum": list(graphs.NAMES)}, {"type": "array", "items": edge}]}
    if annotation == Milestones:
        return {"type": "array", "items": {"type": "integer", "minimum": 1}, "uniqueItems": True}
    kind, bound = get_args(annotation)[:2]
    limits = {word: getattr(bound, name) for name, word in _KEYWORDS.items()}
    return {
        "type": "integer" if kind is int else "number",
        **{word: limit for word, limit in limits.items() if limit is not None},
    }
