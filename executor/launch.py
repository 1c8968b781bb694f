"""Runs a scenario with real processes on this machine, inside it or over a testbed.

The processes are forked from multiprocessing's fork server, and meet in a private folder. What they record
goes to disk as it comes. A process that dies ends the run, unless the scenario recovers from that; so do one
that does not get on, Ctrl-C and SIGTERM: the others are told to stop, write down the rest, and are killed.
Should this process be killed, or stand still, they end by themselves.
"""

import multiprocessing
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import inf
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pandas as pd

import lockstep.analysis.streams as streams
from lockstep.analysis.incomplete import Incomplete
from lockstep.analysis.result import Result
from lockstep.executor import blame, collect, lives, process, signals
from lockstep.executor.barrier import passed
from lockstep.executor.folder import new_folder
from lockstep.executor.fork_server import ForkServerGuard, interruptible, start_for
from lockstep.executor.forking import no_main_module
from lockstep.executor.heartbeat import ORPHANED
from lockstep.executor.hub import Hub
from lockstep.executor.injector import Injector
from lockstep.executor.leaving import name_dead
from lockstep.executor.process import START
from lockstep.executor.replacing import Replacing
from lockstep.executor.room import with_data
from lockstep.executor.sockets import Place
from lockstep.executor.steal_time import StealTime
from lockstep.executor.stores import FolderStore
from lockstep.executor.testbed import Seat, Testbed
from lockstep.executor.watchdog import LEAST_S, Watchdog
from lockstep.job.faults import Fault, Hang, Unforeseen
from lockstep.job.incarnation import FIRST, Incarnation
from lockstep.job.plan import Plan
from lockstep.job.recovery import Faults, detect_s
from lockstep.scenarios import ScenarioError
from lockstep.workloads import Learner
from lockstep.workloads.memory import bytes_of, require

Progress = Callable[[float], None]
Waiting = Callable[[str], None]
_LOST = 255  # the exit code of a process whose fork server has died
_LEAST_BYTES = 20e6  # that a process takes for itself, with next to nothing to learn; the rest is shared
_BETWEEN_HOSTS = 10e6  # bytes/s of a network of which nothing is known
INSIDE = 5e8  # bytes/s that messages between processes of a machine have at least
_IN_TURN = 10  # as often as everybody's largest message may be in others' way
_LEAST_DETECT_S, _LATE_S = 2.0, 1.0  # without a sign, of which there are two a second; busy machines are late
_BY_THEMSELVES = 20  # processes that may die in a run, or a life of it, before that is no accident
_SETTLE_S = 0.1  # in which the death that made a process fail is known too


class RunFailed(RuntimeError):
    """A process of the run died. `records`: what the others had measured; `details`: its traceback."""

    def __init__(self, message: str, records: pd.DataFrame | None = None, details: str = "") -> None:
        super().__init__(message)
        self.records = records
        self.details = details


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM ended the run. `records`: what had been measured."""

    def __init__(self, records: pd.DataFrame | None) -> None:
        super().__init__("interrupted")
        self.records = records


def execute(
    plan: Plan,
    progress: Progress | None = None,
    *,
    testbed: bool = False,
    out: Path | None = None,
    deadline_s: float | None = None,
    waiting: Waiting | None = None,
    resume: bool = False,
) -> Result:
    """Measure a run of the job; `progress` is told the fraction done now and then.

    With `testbed` the processes talk over the scenario's own network, else inside this machine. `out`: the
    folder in which its records are kept, below `incomplete`, while it goes on. `deadline_s`: for how long a
    process may give no sign, or not get on (docs/failures.md); `waiting` is told for whom others wait.
    `resume`: go on with the run whose records and checkpoints are there.

    Raises ScenarioError if memory has no room for its processes, RunFailed if one dies or does not get on,
    RunInterrupted at Ctrl-C or SIGTERM. However it ends, nothing of the run is left behind but its records.
    """
    interruption = signals.Interruption()
    with signals.handled(interruption, *signals.ENDING), interruptible(interruption), ExitStack() as stack:
        bed = None
        if testbed:
            bed = stack.enter_context(Testbed(plan.scenario.cluster, plan.hosts))
        steal_time = StealTime()
        folder = new_folder()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        learner = _prepared(plan, testbed)
        incomplete = stack.enter_context(Incomplete(out, None if resume else plan.scenario)) if out else None
        kept = incomplete.folder if incomplete else folder

        def live(run: "_Run") -> Result:
            return run.result(progress, waiting, interruption)

        try:
            if plan.scenario.with_faults:
                begin = partial(_Run, plan, bed, learner, deadline_s)
                result = lives.measure(plan, kept, begin, live, resume)
            else:
                run = _Run(plan, bed, learner, deadline_s, folder, kept)
                stack.callback(run.close)
                result = live(run)
        except lives.LifeOver as over:
            failure = RunFailed(lives.why(plan, over), over.records)
            if incomplete is not None:
                incomplete.keep(over.records, str(failure))
            raise failure from None
        except (RunFailed, RunInterrupted, signals.TimedOut, ScenarioError) as error:
            if incomplete is not None:
                begun = resume or not isinstance(error, ScenarioError)
                with signals.handled(signal.SIG_IGN, *signals.ENDING):
                    if begun or not incomplete.undo():
                        incomplete.keep(getattr(error, "records", None), str(error))
            raise
        warnings = [*result.warnings, *(bed.warnings() if bed else ())]
        disturbances = [*result.disturbances, *steal_time.disturbances()]
        return replace(result, warnings=warnings, disturbances=disturbances)


def _prepared(plan: Plan, testbed: bool) -> Learner | None:
    """Start the fork server, and build what evaluates the run meanwhile; None if nothing is learned.

    Raises ScenarioError for what cannot be built, or run here; nothing has been written then.
    """
    start_for(plan, testbed)
    check_room(plan, range(len(plan.roles)))
    return collect.evaluator(plan.scenario)  # data are downloaded once


class _Run:
    """The processes of one run, and what they leave in `folder` and `kept`."""

    def __init__(
        self,
        plan: Plan,
        bed: Testbed | None,
        learner: Learner | None,
        deadline_s: float | None,
        folder: Path,
        kept: Path,
        life: Incarnation = FIRST,
        origin: float | None = None,
        faults: Faults | None = None,
    ) -> None:
        """life, origin, faults: see `lives.Begin`."""
        self.plan, self.folder, self.kept, self.learner = plan, folder, kept, learner
        self.names = [role.name for role in plan.roles]
        watchdog = Watchdog(len(self.names), deadline_s)
        watchdog.senders = plan.senders
        watchdog.path_s = path_s(plan, plan.scenario.cluster.network.bandwidth if bed else INSIDE)
        self.hub = Hub(Place(folder), watchdog)
        self.store = FolderStore(folder / process.STORE)
        brief = replace(life, saved={})  # each process reads its own
        self._contact = process.Contact(folder, kept, self.hub.endpoint, deadline_s, brief, origin)
        self._bed = bed
        self.processes = [self._process(rank, self._contact) for rank in range(len(self.names))]
        self.replacing = Replacing(plan, folder, kept, self.hub, self.store, life)
        self.origin = origin
        self.injector = None
        if faults is not None:
            ended = partial(collect.has_ended, folder)
            self.injector = Injector(plan.scenario, faults, self.processes, self.store, bed, ended)
        self._named = 0  # dead, by name, to the others
        self._frozen = ForkServerGuard(deadline_s or LEAST_S)

    def _process(self, rank: int, contact: process.Contact) -> BaseProcess:
        return multiprocessing.get_context("forkserver").Process(
            target=process.main,
            args=(self.plan.scenario, rank, contact, self._bed.seat(rank) if self._bed else Seat()),
            name=f"lockstep-{rank}",
        )

    def result(
        self, progress: Progress | None, waiting: Waiting | None, interruption: signals.Interruption
    ) -> Result:
        """Start the processes, and wait for what comes of them."""
        try:
            self._start()
            absent = self.replacing.absent
            watch = collect.Watch(self.plan, self.store, self.folder, self.learner, absent)
            for _ in self._until_all_have_ended():
                interruption.check()
                watch.look()
                if progress is not None and self.hub.done_share:
                    progress(self.hub.done_share)
                if waiting is not None:
                    waiting(blame.waiting_for(self.hub.waited_for(), self.names))
            try:
                result = collect.result(self.plan, self.folder, self.kept, self.learner)
            except ScenarioError as error:  # the records, at least, are there
                raise RunFailed(f"its parameters cannot be evaluated: {error}") from None
            stopped = self.injector.stopped if self.injector else ()
            return collect.seen(result, self.hub, self.names, stopped)
        except KeyboardInterrupt:
            raise RunInterrupted(self._records_so_far()) from None
        except (RunFailed, lives.LifeOver, signals.TimedOut) as failure:
            failure.records = self._records_so_far()
            raise

    def close(self) -> None:
        """Kill what is left of the processes."""
        self._frozen.end()
        if self.injector is not None:
            self.injector.end()
        self._kill()
        self.hub.close()

    def _kill(self) -> None:
        for child in self.processes:
            if child.is_alive():
                child.kill()
            if child.pid is not None:
                child.join()

    def _start(self) -> None:
        for rank in range(len(self.processes)):
            self._begin(rank)

    def _begin(self, rank: int) -> None:
        try:
            with no_main_module():
                self.processes[rank].start()
                self.hub.expect(rank)
        except (EOFError, ConnectionError) as error:
            raise RunFailed(self._frozen.why or f"no process can be started: {error}") from None

    def _until_all_have_ended(self) -> Iterator[None]:
        """Give way several times a second; raise RunFailed if a process ends badly, or holds others up."""
        while True:
            gone = self._made_to_fail()
            exitcodes = [None if r in gone else code for r, code in enumerate(self._exitcodes())]
            if any(exitcodes) and not gone and not (self.injector and self.injector.dead):
                time.sleep(_SETTLE_S)
                if self._died_by_themselves(self._exitcodes()):
                    continue
                raise self._failure(self._exitcodes())
            if self._stopped_by_themselves():
                continue
            if None not in exitcodes:
                return
            if stall := self.hub.stall():
                if stall.kind == "silent" and self._have_failed(stall.ranks, stall.seconds):
                    continue
                why = blame.stalled(stall, self.names, self.hub.about)
                if stall.kind == "silent":
                    for rank in stall.ranks:
                        self.processes[rank].kill()  # it would not hear that it is to end
                raise RunFailed(why)
            connection.wait(
                [child.sentinel for child in self.processes if child.exitcode is None], timeout=0.1
            )
            yield

    def _died_by_themselves(self, exitcodes: Sequence[int | None]) -> bool:
        """Whether processes were killed, as a machine's failure or the system would, and it goes on.

        A process that ends with an error of its own would do so again.
        """
        killed = [rank for rank, exitcode in enumerate(exitcodes) if exitcode is not None and exitcode < 0]
        others = any(exitcode is not None and exitcode > 0 for exitcode in exitcodes)
        if self.injector is not None and self.injector.is_noticed_later(killed):
            return True  # since the launcher looked who was gone
        if not killed or (self.plan.goes_on and others):
            return False
        return self._have_failed(killed)

    def _stopped_by_themselves(self) -> bool:
        """Whether processes are stopped for longer than failures may, and the job recovers."""
        if self.injector is None or self.injector.origin is None:
            return False
        seconds = max(detect_s(self.plan.scenario), _LEAST_DETECT_S) + _LATE_S
        stopped = {
            rank: quiet
            for rank, quiet in self.hub.silent(seconds).items()
            if rank not in self.injector.gone
            and rank not in self.injector.still
            and blame.is_stopped(self.processes[rank].pid or 0)
        }
        return bool(stopped) and self._have_failed([*stopped], max(stopped.values()))

    def _have_failed(self, ranks: Sequence[int], quiet_s: float | None = None) -> bool:
        """Let the job recover from what has befallen these; False: it does not. `quiet_s`: without a sign."""
        injector = self.injector
        if injector is None or injector.origin is None or injector.by_themselves >= _BY_THEMSELVES:
            return False
        if self._frozen.why or self.plan.scenario.on_failure == "stop":
            return False
        since = None if quiet_s is None else max(0.0, time.monotonic() - quiet_s - injector.origin)
        return injector.has_failed(ranks, since)

    def _exitcodes(self) -> list[int | None]:
        absent = self.replacing.absent
        return [0 if rank in absent else child.exitcode for rank, child in enumerate(self.processes)]

    def _replace(self, rank: int, fault: Fault, at: float) -> None:
        """Put another process in the place of one that has been killed; it waits until it is to be there."""
        self.processes[rank].kill()  # if it was to die again before it took this place
        self.processes[rank].join()
        if (life := self.replacing.bury(rank, fault, at)) is not None:
            if isinstance(fault, Unforeseen):
                self._named += 1
                name_dead(self.store, self._named, rank, life.number)
            contact = replace(self._contact, life=life, origin=self.origin)
            self.processes[rank] = self._process(rank, contact)
            self._begin(rank)

    def _made_to_fail(self) -> Mapping[int, Fault]:
        """Those who have failed for good, or for the whole job. Raises LifeOver once that is noticed."""
        injector = self.injector
        if injector is None:
            return {}
        if injector.origin is None:
            if self.origin is None and self.store.check(["zero"]):
                self.origin = float(self.store.get("zero"))
            # who takes a place is no help to others that still wait for all to begin
            begun = not self.plan.goes_on or passed(self.store, START, len(self.processes))
            if self.origin is not None and begun:
                injector.begin(self.origin)
        if injector.failed is not None:
            assert self.origin is not None
            # else there is nothing to hand over
            begun = any(self.kept.glob(f"rank-*.{streams.RECORDS}.arrow"))
            for rank, child in enumerate(self.processes):
                if not begun or isinstance(injector.gone.get(rank), Hang | Unforeseen):
                    child.kill()  # one that stands still would not hear that it is to end
            raise lives.LifeOver(
                injector.failed, time.monotonic() - self.origin, dict(injector.gone), injector.cuts
            )
        while injector.dead:
            self._replace(*injector.dead.popleft())
        return {rank: fault for rank, fault in injector.gone.copy().items() if not injector.goes_on(fault)}

    def _failure(self, exitcodes: Sequence[int | None]) -> RunFailed | ScenarioError:
        """What went wrong first: a process that dies lets others fail who were talking to it.

        A ScenarioError: bad input that only a process could find, before the clock started.
        """
        if self._frozen.why:
            return RunFailed(self._frozen.why)
        found = []
        for rank, exitcode in enumerate(exitcodes):
            if not exitcode:
                continue
            at, cause, details = inf, f"exit code {exitcode}", ""
            if exitcode < 0:
                at, cause = 0.0, f"killed by {signal.Signals(-exitcode).name}"
            elif failure := self.hub.failures.get(rank):
                at, cause, details = failure.at, failure.line, failure.details
                if not details and self.origin is None and not self.store.check(["zero"]):
                    return ScenarioError(cause)
            elif exitcode == _LOST:
                cause = "lost, because the process that it was forked from has died"
            elif exitcode == ORPHANED:
                return RunFailed(
                    f"this process stood still for {self.hub.stood_s:.0f} s; those of the run have ended"
                )
            found.append((at, rank, cause, details))
        _, rank, cause, details = min(found)
        return RunFailed(f"{self.names[rank]} (rank {rank}) died: {cause}", details=details)

    def _records_so_far(self) -> pd.DataFrame | None:
        """Stop the processes that still run, and gather what they and those that ended have recorded."""
        with signals.handled(signal.SIG_IGN, *signals.ENDING):
            for child in self.processes:
                if child.is_alive():
                    child.terminate()
            alive = lambda: [rank for rank, child in enumerate(self.processes) if child.is_alive()]  # noqa: E731
            collect.await_outcomes(self.folder, alive)
            self._kill()  # who has not obeyed writes nothing after what is read now
            return streams.records(streams.streams(self.kept))


def path_s(plan: Plan, rate: float | None) -> float:
    """For how long (s) messages may be on their way before one counts as lost: many times everybody's.

    rate: of the slowest part of the network, bytes/s; None: not known.
    """
    messages = _IN_TURN * len(plan.roles) * plan.sizes.nbytes
    return messages / (rate or _BETWEEN_HOSTS)


def check_room(plan: Plan, ranks: Sequence[int]) -> None:
    """Raise ScenarioError for more processes than memory has room for: the machine would go down.

    ranks: of this host.
    """
    nbytes = len(ranks) * _LEAST_BYTES + sum(with_data(plan, rank) for rank in ranks)
    if 0 in ranks and plan.scenario.workload.learns:  # here is what evaluates the run, too
        nbytes += bytes_of(plan.scenario.workload, plan.sizes)
    what = f"a run of its {len(ranks):,} processes"
    require(nbytes, what, "cluster.workers", "take fewer, or more hosts (docs/hosts.md)")
