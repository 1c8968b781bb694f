"""What nodes say to each other, written once for both engines.

This package imports nothing but the standard library: no engine, no tensors. Everything a strategy
can do is a member of `Node`; the engine that runs it decides what waiting means.
"""

from lockstep.strategies.idle import unused
from lockstep.strategies.mistakes import StrategyError
from lockstep.strategies.node import Collective, Contribution, Message, Node, Source, Vector
from lockstep.strategies.registry import STRATEGIES, find, fits, own
from lockstep.strategies.strategy import Strategy

__all__ = [
    "STRATEGIES",
    "Collective",
    "Contribution",
    "Message",
    "Node",
    "Source",
    "Strategy",
    "StrategyError",
    "Vector",
    "find",
    "fits",
    "own",
    "unused",
]
