"""Real runs of which processes are killed or stopped at random, the launcher's among them, and links cut.

Links are cut as `cluster.faults` says, on a testbed for real: with whom the run talks is not to be cut off.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import psutil

import lockstep
from lockstep.analysis.result import Result
from lockstep.analysis.saved import load
from lockstep.scenarios import Scenario, dump
from lockstep.scenarios.loading import changing
from lockstep.studies.chaos import Trial
from lockstep.studies.chaos.drawn import cuts, words
from lockstep.studies.chaos.invariants import broken

_MARK = "LOCKSTEP_CHAOS"
_COMMAND = [sys.executable, "-c", "from lockstep.cli import main; main()", "run"]
_DEADLINE_S = 5  # for which a process may give no sign
_PATIENCE_S = 60.0  # in which a run that was struck is over, besides what it takes unharmed
_STANDS_S = 1.0  # for how long a process is stopped, on average
_STATUSES = {0, 3, 130}
_LOOK_S = 0.02
_TORCHS = "torchinductor_"  # PyTorch's cache of a user, which it keeps from run to run


def trials(scenario: Scenario, seed: int, mtbf_s: float, testbed: bool = False) -> Iterator[Trial]:
    """One after the other, without end; somebody is struck every `mtbf_s`, on average.

    Raises RunFailed if the scenario does not even run unharmed, ScenarioError if it cannot.
    """
    began = time.monotonic()
    unharmed = lockstep.run(scenario, testbed=testbed, attempts=1)
    usual_s = time.monotonic() - began
    number = 0
    while True:
        with tempfile.TemporaryDirectory(prefix="lockstep-chaos-") as folder:
            random = Random(f"{seed}/chaos/{number}")
            links = _links(Random(f"{seed}/chaos/{number}/links"), unharmed, testbed)
            yield _Run(Path(folder), scenario, testbed, links).trial(number, random, mtbf_s, usual_s)
        number += 1


def _links(random: Random, unharmed: Result, testbed: bool) -> list[dict[str, Any]]:
    """A cut in every second run: of a link, or between hosts. Only a testbed cuts off native collectives."""
    plan, end = unharmed.plan, unharmed.span[1]
    if len(set(plan.hosts)) == 1 or (plan.native and not testbed) or random.random() < 0.5:
        return []
    lasts = random.expovariate(10 / end)
    return [random.choice(cuts(random, plan, f"{random.uniform(0, end):.4g} s", f"{lasts:.4g} s"))]


class _Run:
    """A `lockstep run` whose processes, and temporary files, can be told from all others."""

    def __init__(
        self, folder: Path, scenario: Scenario, testbed: bool, links: Sequence[dict[str, Any]]
    ) -> None:
        """links: those that are cut, as items of `cluster.faults`."""
        self._links = links
        if links:
            faults = scenario.cluster.model_dump(mode="json", exclude_none=True)["faults"]
            scenario = changing(scenario).changed({"cluster.faults": [*faults, *links]})
        self.out, self.temporary, self._said = folder / "out", folder / "tmp", folder / "said"
        self.temporary.mkdir()
        self._file = folder / "scenario.yaml"
        self._file.write_text(dump(scenario), encoding="utf-8")
        self._mark = uuid4().hex
        self._options = ["--quiet", "--deadline", str(_DEADLINE_S), *(["--testbed"] if testbed else [])]
        self._resumes = scenario.recovery is not None and scenario.recovery.checkpoint is not None
        self._own: dict[int, psutil.Process] = {}
        self._launcher_died = False

    def trial(self, number: int, random: Random, mtbf_s: float, usual_s: float) -> Trial:
        """Strike it until it has ended, and look at what is left."""
        began = time.monotonic()
        struck = [*map(words, self._links)]
        wrong: list[str] = []
        launcher = self._start([str(self._file), "--out", str(self.out), "--attempts", "1"])
        alive = self._strike(launcher, random, mtbf_s, usual_s, struck)
        end = "said"
        if alive:
            wrong.append(f"it had not ended after {time.monotonic() - began:.0f} s")
        elif launcher.returncode == -signal.SIGKILL:
            self._launcher_died = True
            wrong += self._left()
            if self._resumes and (self.out / "incomplete").exists() and not wrong:
                again = self._start(["--resume", str(self.out)])
                with suppress(subprocess.TimeoutExpired):
                    again.wait(_PATIENCE_S + usual_s)
                wrong += self._how_it_ended(again.poll())
                end = "resumed" if again.returncode == 0 else "said"
        else:
            wrong += self._how_it_ended(launcher.returncode)
            end = "ended" if launcher.returncode == 0 else "said"
        wrong += self._left()
        self._kill()
        lines = self._said.read_text(encoding="utf-8", errors="replace").splitlines()
        said = lines[-1] if lines and end == "said" else ""
        wrong = [*dict.fromkeys(wrong)]
        took = time.monotonic() - began
        return Trial(number, tuple(struck), "broken" if wrong else end, said, tuple(wrong), took)

    def _start(self, arguments: list[str]) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "TMPDIR": str(self.temporary), _MARK: self._mark}
        with open(self._said, "wb") as said:
            return subprocess.Popen(
                [*_COMMAND, *arguments, *self._options], env=environment, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip

    def _strike(
        self,
        launcher: "subprocess.Popen[bytes]",
        random: Random,
        mtbf_s: float,
        usual_s: float,
        struck: list[str],
    ) -> bool:
        """Whether it is still there when everybody's patience is over."""
        began = time.monotonic()
        next_at, awake = began + random.expovariate(1 / mtbf_s), dict[int, float]()
        while (now := time.monotonic()) < began + usual_s + _PATIENCE_S:
            if launcher.poll() is not None and not self._processes():
                return False
            for pid, at in [*awake.items()]:
                if now >= at:
                    del awake[pid]
                    self._signal(pid, signal.SIGCONT)
            if now >= next_at:  # orphans, too
                next_at = now + random.expovariate(1 / mtbf_s)
                if found := self._processes():
                    victim = random.choice(sorted(found, key=lambda each: each.pid))
                    stands = random.expovariate(1 / _STANDS_S) if random.random() < 0.3 else None
                    who = _name(victim, launcher.pid)
                    if stands is None:
                        struck.append(f"{who} killed after {now - began:.2f} s")
                        self._signal(victim.pid, signal.SIGKILL)
                    else:
                        struck.append(f"{who} stopped for {stands:.2f} s after {now - began:.2f} s")
                        self._signal(victim.pid, signal.SIGSTOP)
                        awake[victim.pid] = now + stands
            time.sleep(_LOOK_S)
        return True

    def _signal(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def _processes(self) -> list[psutil.Process]:
        """Those of the run that are alive: known by their environment, which children have too."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.pid not in self._own and process.environ().get(_MARK) == self._mark:
                    self._own[process.pid] = process
        for process in self._own.values():
            with suppress(psutil.Error):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def _how_it_ended(self, status: int | None) -> list[str]:
        said = self._said.read_text(encoding="utf-8", errors="replace")
        lines = said.splitlines()
        if status == 0:
            return [*broken(load(self.out)), *self._replayed()]
        wrong = [] if status in _STATUSES else [f"its exit status was {status}"]
        if not lines or not lines[-1].startswith("error: "):
            wrong.append(f"it did not say why: {lines[-1] if lines else 'nothing'}")
        if "Traceback" in said:
            wrong.append(f"a traceback: {lines[-1]}")
        return wrong

    def _replayed(self) -> list[str]:
        """What is wrong with its replay, if it can be replayed."""
        try:
            lockstep.replay(self.out)
        except lockstep.ScenarioError:
            return []
        except (RuntimeError, AssertionError) as error:
            return [f"its replay: {error}"]
        return []

    def _left(self) -> list[str]:
        """What is left of it: processes after a while, and files, unless its launcher was killed."""
        end = time.monotonic() + 3 * _DEADLINE_S + 30
        while (alive := self._processes()) and time.monotonic() < end:
            time.sleep(0.1)
        files = [] if self._launcher_died else sorted(each.name for each in self.temporary.iterdir())
        files = [name for name in files if not name.startswith(_TORCHS)]
        return [f"left behind: {what}" for what in [*(_name(process, 0) for process in alive), *files]]

    def _kill(self) -> None:
        for process in self._processes():
            with suppress(psutil.Error):
                process.kill()


def _name(process: psutil.Process, launcher: int) -> str:
    if process.pid == launcher:
        return "the launcher"
    with suppress(psutil.Error):
        words = " ".join(process.cmdline())
        for kind in ("forkserver", "resource_tracker"):
            if kind in words and process.ppid() == launcher:
                return f"the {kind.replace('_', ' ')}"
        return f"a process ({words[:60]})"
    return "a process"
