"""A strategy whose factors are taken from several, and why some do not go together."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from lockstep.strategies.factors import Needs, Offer, WorkerLoop
from lockstep.strategies.marks import Excludes
from lockstep.strategies.mistakes import StrategyError, all_of, nearest
from lockstep.strategies.strategy import FACTORS, Strategy

Strategies = Mapping[str, Strategy]
Sources = Mapping[str, str]  # factor → the strategy that it is of
Values = Mapping[str, Any]


def composed(strategies: Strategies, name: str, values: Values) -> Strategy:
    """The named strategy with the factors that are taken from others; raises StrategyError."""
    base = strategies[name]
    served = [other for other, strategy in strategies.items() if strategy.has_servers]
    for key in FACTORS:
        if key in values and values[key] not in served:
            problem = f"{values[key]!r} is not a strategy with a server"
            raise StrategyError(f"strategy.{key}", problem + nearest(str(values[key]), served))
    if not base.has_servers:
        return base
    sources = {factor: values.get(factor, name) for factor in FACTORS}
    taken = {key: getattr(strategies[s], key) for key, s in sources.items() if s != name}
    found = replace(base, **taken) if taken else base
    _check_needs(strategies, found, sources, values)
    _check_pairs(strategies, name, sources, values)
    _check_correction(found, sources, values)
    _check_meanings(found, sources, values)
    _check_values(strategies, found, sources, values)
    return found


def _check_needs(strategies: Strategies, found: Strategy, sources: Sources, values: Values) -> None:
    assert isinstance(found.worker_loop, WorkerLoop), "its needs are not declared"
    if problem := _lacking(strategies, found, sources, found.worker_loop.needs):
        problem = f"{sources['worker_loop']}'s worker loop {problem}"
        raise _error(values, ("consistency", "worker_loop"), problem)


def _lacking(
    strategies: Strategies, found: Strategy, sources: Sources, needs: Collection[Offer]
) -> str | None:
    """Which needs the synchronisation model does not meet, and whose would; None if it meets all."""
    assert found.consistency is not None
    missing = [offer.value for offer in Offer if offer in needs and offer not in found.consistency.offers]
    if not missing:
        return None
    able: dict[Any, str] = {}  # by model, of which some strategies have the same
    for name, strategy in strategies.items():
        if strategy.consistency is not None and strategy.consistency.offers.issuperset(needs):
            able.setdefault(strategy.consistency, name)
    whose = f"unlike {sources['consistency']}'s (valid: {', '.join(able.values())})"
    return f"needs a server that {all_of(missing)}, {whose}"


def _check_pairs(strategies: Strategies, name: str, sources: Sources, values: Values) -> None:
    """A model that does not answer each push goes by its own name only, with its own worker loop."""
    involved = [name, sources["worker_loop"], sources["consistency"]]
    for each in involved:
        model = strategies[each].consistency
        if model is not None and not model.answers and len({*involved}) > 1:
            problem = f"the worker loop and the synchronisation model of {each} go with each other only"
            raise _error(values, ("worker_loop", "consistency"), f"{problem}, under the name {each}")


def _check_correction(found: Strategy, sources: Sources, values: Values) -> None:
    if found.correction is not None and found.pushes not in found.correction.of:
        kinds = all_of(sorted(found.correction.of))
        problem = f"{sources['correction']} corrects {kinds}, not {found.pushes}"
        problem += f", which {sources['worker_loop']}'s worker loop pushes"
        raise _error(values, ("correction", "worker_loop"), problem)


def _check_meanings(found: Strategy, sources: Sources, values: Values) -> None:
    names = {getattr(found, part): source for part, source in sources.items()}
    for name, meanings in found.two_meanings.items():
        said = all_of(f"to {names.get(part, 'all')} {meaning}" for part, meaning in meanings.items())
        parts = ("consistency", "worker_loop", "correction")
        raise _error(values, parts, f"{name} would mean two things: {said}")


def _check_values(strategies: Strategies, found: Strategy, sources: Sources, values: Values) -> None:
    given = {key: p.default for key, p in found.parameters.items()} | dict(values)
    for key, _, excluded in found.marks(Excludes):
        together = excluded.others.items()
        if given[key] == excluded.value and all(given.get(other) in those for other, those in together):
            raise StrategyError(f"strategy.{excluded.key}", excluded.why.format(**given))
    for key, part, more in found.marks(Needs):
        needs = {*part.needs, more.offer} if isinstance(part, WorkerLoop) else {more.offer}
        problem = _lacking(strategies, found, sources, needs) if given[key] == more.value else None
        if problem:
            raise StrategyError(f"strategy.{key}", f"{more.value} {problem}")


def _error(values: Values, factors: tuple[str, ...], problem: str) -> StrategyError:
    """An error at the first of these factors that the scenario takes from another strategy."""
    given = [factor for factor in factors if factor in values]
    return StrategyError(f"strategy.{given[0] if given else 'name'}", problem)
