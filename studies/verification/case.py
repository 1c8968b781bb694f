"""What a case of `lockstep verify` is made of: a scenario, a closed form, and when the two agree.

A case has one of three tolerances, each a function of how the value was got and none chosen by hand:
`exact` for what has no randomness in it, `estimate` for a mean over a random run, `within` for a value whose
greatest deviation follows from a law, which the case states.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

import lockstep
from lockstep import Result, Scenario

Array = NDArray[np.float64]

ROUNDING = 1e-9  # relative, of sums of some thousand float64
_BATCHES = 50
_STANDARD_ERRORS = 5  # exceeded by chance once in 10⁵ cases (Student's t with 49 degrees of freedom)


@dataclass(frozen=True)
class Outcome:
    """The closed form's value, the simulator's, and the largest error that the case allows.

    The error is relative to the theory, absolute where that is 0; `at_most` says that the theory is a bound
    and only what is above it is an error.
    """

    theory: float
    simulated: float
    tolerance: float
    at_most: bool = False

    @property
    def error(self) -> float:
        """Of the simulated value."""
        difference = self.simulated - self.theory
        difference = max(0.0, difference) if self.at_most else abs(difference)
        return difference / (abs(self.theory) or 1.0)

    @property
    def verdict(self) -> Literal["pass", "fail"]:
        """Not a number fails."""
        return "pass" if self.error <= self.tolerance else "fail"


@dataclass(frozen=True)
class Case:
    """One closed form in one scenario. `check` simulates."""

    name: str
    check: Callable[[], Outcome]


def grid(name: str, check: Callable[..., Outcome], **values: Any) -> list[Case]:
    """A case for each combination of the keyword arguments' values, which also fill in the name."""
    points = [dict(zip(values, point, strict=True)) for point in product(*values.values())]
    return [Case(name.format(**point), partial(check, **point)) for point in points]


def exact(theory: float, simulated: float) -> Outcome:
    """Nothing is random: equal but for rounding."""
    return Outcome(theory, simulated, ROUNDING)


def within(bound: float, theory: float, simulated: float, at_most: bool = False) -> Outcome:
    """No further from the theory than `bound`, in the value's own unit."""
    return Outcome(theory, simulated, bound / (abs(theory) or 1.0), at_most)


def estimate(theory: float, samples: Array, at_most: bool = False) -> Outcome:
    """The mean of a stationary sequence, 5 standard errors by batch means allowed.

    The sequence is cut into 50 batches, each long against the time in which the sequence forgets, so their
    means are nearly independent and normal (Law, Simulation Modeling and Analysis, ch. 9).
    """
    length = len(samples) // _BATCHES
    means = samples[-length * _BATCHES :].reshape(_BATCHES, length).mean(axis=1)
    standard_error = float(means.std(ddof=1)) / _BATCHES**0.5
    return within(_STANDARD_ERRORS * standard_error, theory, float(means.mean()), at_most)


def simulate(
    strategy: str | dict[str, Any],
    stop: dict[str, Any],
    *,
    workers: int,
    time: dict[str, Any] | None = None,
    parameters: int = 1000,
    recovery: dict[str, Any] | None = None,
    **cluster: Any,
) -> Result:
    """Run a sizes-only scenario; `time` is the distribution of a gradient (none: 0 s).

    Its seed follows from its text, so that no two cases are wrong by the same bad luck, and each has the same
    outcome for ever.
    """
    document: dict[str, Any] = {
        "name": "verify",
        "cluster": {"workers": workers, "compute": {"time": time or constant(0)}} | cluster,
        "workload": {"parameters": parameters},
        "strategy": strategy,
        "stop": stop,
        **({"recovery": recovery} if recovery else {}),
    }
    document["seed"] = crc32(json.dumps(document).encode())
    return lockstep.simulate(Scenario.model_validate(document))


def constant(seconds: float) -> dict[str, Any]:
    """Every gradient takes as long."""
    return {"distribution": "constant", "value": f"{seconds} s"}


def exponential(mean: float, shift: float = 0.0) -> dict[str, Any]:
    """Exponential, of that mean, with `shift` seconds added."""
    if shift:
        return {"distribution": "shifted-exponential", "shift": f"{shift} s", "mean": f"{mean} s"}
    return {"distribution": "exponential", "mean": f"{mean} s"}


def pareto(mean: float, shape: float) -> dict[str, Any]:
    """Heavy tails: no variance with a shape up to 2."""
    return {"distribution": "pareto", "mean": f"{mean} s", "shape": shape}


def update_times(result: Result) -> Array:
    """When the first owner of parameters made its updates, seconds, shape (updates,)."""
    updates = result.records[result.records["event"] == "update"]
    own = updates[updates["node"] == result.plan.owners.ranks[0]].drop_duplicates("version")
    return own["end"].to_numpy()


def between_updates(result: Result) -> Array:
    """Seconds from each update to the next, shape (updates − 1,)."""
    return np.asarray(np.diff(update_times(result)))
