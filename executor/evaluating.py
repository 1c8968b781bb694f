"""A process that evaluates parameters for one that computes gradients itself, as rank 0 does under torchrun.

Evaluated in a thread there, both would seed and draw from torch's one generator: then the bits of a gradient
depend on when the other draws. And they would take the time of its gradients.
"""

import multiprocessing
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from threading import Lock

import torch
from torch import Tensor

from lockstep.executor import collect, signals
from lockstep.executor.forking import no_main_module
from lockstep.executor.heartbeat import repr_line
from lockstep.executor.parent import end_with_parent, print_aside
from lockstep.scenarios import Scenario, ScenarioError
from lockstep.workloads import Evaluation


class _Died(RuntimeError):
    """The process has."""


class Apart:
    """Evaluates what a run learns in a process of its own, which is there until `close`."""

    def __init__(self, scenario: Scenario) -> None:
        """Raises ScenarioError for a workload that cannot be built."""
        self._scenario, self._closed = scenario, False
        self._changing = Lock()
        self._begin()

    def _begin(self) -> None:
        self._line, theirs = multiprocessing.Pipe()
        given = self._scenario, theirs
        self._process = multiprocessing.get_context("spawn").Process(target=_serve, args=given)
        resource_tracker.ensure_running()  # here: it lets the signals through again
        # it is not to die before the run does: torchrun tells all processes of a host to end
        with no_main_module(), signals.blocked(*signals.ENDING):
            self._process.start()
        theirs.close()
        try:
            self._answer()
        except BaseException:
            self._end()
            raise

    def evaluate(self, parameters: Tensor) -> Evaluation:
        """As a learner does; once anew if the process has died. Raises RuntimeError if it cannot."""
        try:
            return self._answer(parameters)  # type: ignore[return-value]
        except _Died:
            with self._changing:
                if self._closed:
                    raise
                self._end()
                self._begin()
            return self._answer(parameters)  # type: ignore[return-value]

    def _answer(self, asked: Tensor | None = None) -> Evaluation | None:
        try:
            if asked is not None:
                self._line.send_bytes(asked.numpy().data)
            answer = self._line.recv()
        except (EOFError, OSError):
            raise _Died("the process that evaluates the run has died") from None
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process."""
        with self._changing:
            self._closed = True
            self._end()

    def _end(self) -> None:
        self._process.kill()
        self._process.join()


def _serve(scenario: Scenario, line: Connection) -> None:
    end_with_parent()
    print_aside()
    torch.set_num_threads(1)  # as in all processes of a run
    with suppress(EOFError, BrokenPipeError):  # who asked is gone
        try:
            learner = collect.evaluator(scenario)
            assert learner is not None
            line.send(None)
            while True:
                parameters = torch.frombuffer(bytearray(line.recv_bytes()), dtype=torch.float32)
                line.send(learner.evaluate(parameters))
        except (EOFError, BrokenPipeError):
            raise
        except ScenarioError as error:
            line.send(error)
        except Exception as error:  # such as memory that is not there
            line.send(RuntimeError(repr_line(error)))
