"""The factors of a strategy with a parameter server, each with what it asks of the others.

A worker loop says what it `needs` of the server, a synchronisation model what it `offers`; they go together
if the one is in the other. A correction says `of` what pushes it is. Each is declared on its function.
"""

from collections.abc import Callable, Coroutine, Set
from enum import Enum
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from lockstep.strategies.marks import Mark
from lockstep.strategies.plain import Plain

P = ParamSpec("P")
R = TypeVar("R")
Run = Coroutine[Any, Any, None]
Pushes = Literal["gradients", "deltas"]


class Offer(Enum):
    """What a server does; the value completes "a server that …".

    Nearly all answer each push. One that does not, because it speaks first, or answers with something else,
    serves the worker loop of its own strategy and no other.
    """

    ANSWERS = "answers each push with the parameters to go on from"
    PULLS = "answers pulls at any time"
    ONE_WAY = "takes one-way pushes"
    AHEAD = "takes a push before it has answered the last"
    AT_ONCE = "holds no answer back"
    CLOCK = "tells its clock"
    AVERAGES_ALONG = "averages the state along"

    K_WORKERS = "breaks off a round once k workers have pushed"
    K_GRADIENTS = "breaks off a round once k gradients have come"
    SLICES = "keeps a barrier for each slice of the workers' making"
    CENTRE = "keeps a centre that all workers pull at together"
    BLOCKS = "filters the mean of all workers' blocks of steps"
    CALLS = "calls some workers for all their local epochs"
    CALLS_FOR_LESS = "calls some workers for fewer local epochs than others"


AT_ANY_TIME = frozenset({Offer.ANSWERS, Offer.PULLS, Offer.ONE_WAY, Offer.AHEAD})


class Needs(Mark):
    """With this value, the worker loop's parameter needs one thing more of the server."""

    value: Any
    offer: Offer


class Factor(Plain, Generic[P, R]):
    """A function that can be called as before; its keyword-only arguments are parameters of the strategy."""

    program: Callable[P, R]

    def __init__(self, *values: Any, **given: Any) -> None:
        super().__init__(*values, **given)
        named = {"__name__", "__qualname__", "__module__", "__doc__"}
        vars(self).update({name: getattr(self.program, name) for name in named}, __wrapped__=self.program)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """What the function does."""
        return self.program(*args, **kwargs)


class WorkerLoop(Factor[P, Run]):
    """When a worker pulls and pushes, and what: gradients, or deltas, how far it has moved by itself.

    The server's optimizer descends along gradients, and adds deltas.
    """

    needs: frozenset[Offer] = frozenset()
    pushes: Pushes = "gradients"
    keeps: int = 0
    """Vectors of its parameters' size that it has besides them, a gradient and its optimizer's state."""


class Synchronisation(Factor[P, Run]):
    """A synchronisation model: when the server applies what it was pushed, and when it answers."""

    offers: frozenset[Offer] = frozenset()
    equal_steps: bool = False
    """Workers meet in every round: mini-batches are dealt out evenly, not first come first served."""
    pooled: bool = False
    """The server chooses who works: the mini-batches of all workers are one budget, whoever makes them."""
    sharded: bool = True
    """Whether the parameters can be cut into shards, each with a server."""
    elastic: bool = False
    """Whether it goes on with those who are there: it hears `leave` and `join` (consistency.py)."""
    copies: bool = False
    """Whether several groups of servers may each have a copy of the parameters, for some of the workers."""
    relay: Callable[..., Run] | None = None
    """What stands between workers and server in a hierarchy; None: there is no such form."""
    optimizer: Callable[..., Any] | None = None
    """What the server does with a sum; None: what the scenario says."""

    @property
    def answers(self) -> bool:
        """Whether it serves worker loops of other strategies."""
        return Offer.ANSWERS in self.offers


class StalenessCorrection(Factor[P, R]):
    """What the server does to each push for its staleness, before it is applied."""

    of: frozenset[Pushes] = frozenset()


def worker_loop(
    *, needs: Set[Offer], pushes: Pushes = "gradients", keeps: int = 0
) -> Callable[[Callable[P, Run]], WorkerLoop[P]]:
    """Declare a worker loop; see WorkerLoop."""
    return lambda program: WorkerLoop(program, frozenset(needs), pushes, keeps)


def synchronisation(*, offers: Set[Offer], **more: Any) -> Callable[[Callable[P, Run]], Synchronisation[P]]:
    """Declare a synchronisation model; the keywords are those of Synchronisation."""
    return lambda program: Synchronisation(program, frozenset(offers), **more)


def staleness_correction(
    *, of: Set[Pushes] = frozenset({"gradients", "deltas"})
) -> Callable[[Callable[P, R]], StalenessCorrection[P, R]]:
    """Declare a correction of these pushes."""
    return lambda make: StalenessCorrection(make, frozenset(of))
