"""Real runs in which processes fail: one life of the job after the other, each from the last checkpoint on.

In the run's folder are, besides checkpoints, a folder for each life: what it began with, and its records. So
a run goes on, too, whose launcher has been killed (`resumed`).
"""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import pandas as pd

import lockstep.analysis.streams as streams
from lockstep.analysis.entries import LIFE
from lockstep.analysis.records import Recorder, join
from lockstep.analysis.result import Result
from lockstep.analysis.whole import put, put_text
from lockstep.executor import checkpoint_file, collect, journal
from lockstep.executor.deaths import KeptFaults
from lockstep.executor.folder import new_folder
from lockstep.executor.replacing import BACK
from lockstep.job.faults import Cut, Fault, Unforeseen
from lockstep.job.incarnation import FIRST, Incarnation, cut, following, nbytes_of
from lockstep.job.plan import Plan
from lockstep.job.recovery import (
    Faults,
    NotBack,
    Progress,
    does_not_come_back,
    next_start,
    noticed,
    read_s,
    recovered,
    says,
)
from lockstep.job.rounds import as_saved, completed
from lockstep.scenarios import ScenarioError

if TYPE_CHECKING:
    from lockstep.executor.launch import _Run

_BY_ITSELF = 10  # more lives that end so after one, without a new checkpoint: there will be none
_BEGIN, _RECORDS = "begin.json", "records.parquet"
Begin = Callable[[Path, Path, Incarnation, float | None, Faults], "_Run"]
"""Makes a run's processes: its private folder, that for records, the life, when clocks began, and faults."""


class LifeOver(Exception):
    """A failure has been noticed. `at`: when, s on the run's clock; `cuts`: those that are under way."""

    def __init__(self, fault: Fault, at: float, gone: dict[int, Fault], cuts: Sequence[Cut]) -> None:
        super().__init__(fault)
        self.fault, self.at, self.gone, self.cuts = fault, at, gone, cuts
        self.records: pd.DataFrame | None = None
        self.because = ""


def measure(plan: Plan, kept: Path, begin: Begin, live: Callable[["_Run"], Result], resume: bool) -> Result:
    """Run one life after the other. Raises LifeOver if one ends the run: its message says why."""
    extra, in_vain, by_itself = Recorder(), Progress(), Progress()
    life, frames, logs, origin = FIRST, list[pd.DataFrame](), list[pd.DataFrame](), None
    known: float | None = None  # since when it is known that the life before is over
    faults = _faults(plan, kept, resume)
    if resume:
        life, frames, logs = resumed(plan, kept)
        origin, known = time.monotonic() - life.start, life.start
        _note_earlier(plan, faults, life.start, extra)
    result: Result | None = None
    while result is None:
        own, private = kept / f"life-{life.number}", new_folder()
        own.mkdir(exist_ok=True)
        _write_begin(own, life, known)
        run = begin(private, own, life, origin, faults)
        try:
            result = live(run)
            own_records = completed(plan, cut(result.records, [], run.replacing.back))
            frames += [own_records, *run.replacing.frames, *run.replacing.rest()]
            run.replacing.note_recoveries(extra)
        except LifeOver as over:
            origin = run.origin
            assert origin is not None
            _write_begin(own, life, known, over.at)
            if plan.scenario.on_failure not in ("restart", "spare"):
                raise
            version, saved = checkpoint_file.whole(plan, kept)
            over.records = _with_unwritten(plan, own, over.records)
            records = _ended(plan, over, max(version, life.version))
            put(own / _RECORDS, partial(records.to_parquet, index=False))
            frames.append(records)
            life = following(plan, life, version, saved, records)
            reading = read_s(plan, life)
            try:
                start = next_start(plan, faults, over.at, [*over.gone.values(), *over.cuts], reading)
            except NotBack as error:
                over.because = str(error)
                raise over from None
            unforeseen = isinstance(over.fault, Unforeseen) and by_itself.in_vain(life, _BY_ITSELF)
            if unforeseen or in_vain.in_vain(life):
                said = says(plan, over.fault, over.fault.ranks)
                over.because = f"{said}, and it fails again and again before the next checkpoint"
                raise
            life, known = replace(life, start=start), over.at
            for rank, each in life.saved.items():
                size = nbytes_of(each.state)
                extra.note("checkpoint", rank, start - reading, start, life.version, size, kind="read")
        finally:
            run.close()
            logs.append(collect.interleaving(plan, own))
            shutil.rmtree(private, ignore_errors=True)
    assert result is not None
    _note_lives(plan, kept, faults, extra)
    faults.record(extra, max(float(frame["end"].max()) for frame in frames if len(frame)))
    records = recovered(plan, join([*frames, extra.frame()]))
    return replace(result, records=records, interleaving=_joined(logs))


def why(plan: Plan, over: LifeOver) -> str:
    """What to say of a run that it has ended."""
    if plan.scenario.on_failure == "stop":
        return says(plan, over.fault, over.fault.ranks)
    return over.because or does_not_come_back(plan, over.fault, over.fault.ranks)


_Resumed = tuple[Incarnation, list[pd.DataFrame], list[pd.DataFrame]]


def resumed(plan: Plan, kept: Path) -> _Resumed:
    """The next life of a run that was killed, and records and logs of those before. Raises ScenarioError."""
    try:
        return _resumed(plan, kept)
    except (OSError, ValueError, LookupError, TypeError, BadZipFile) as error:  # of JSON, numpy and Parquet
        raise _unreadable(kept, error) from None


def _unreadable(kept: Path, error: Exception) -> ScenarioError:
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    return ScenarioError(f"{kept} cannot be read ({said})", key="--resume")


def _resumed(plan: Plan, kept: Path) -> _Resumed:
    lives = _lives(kept)
    if not lives:
        problem = "no run in it can go on; it needs recovery.checkpoint, and a run that has not ended"
        raise ScenarioError(problem, key="--resume")
    version, saved = checkpoint_file.whole(plan, kept)
    frames, life = [], FIRST
    for folder in lives:
        life = _read_begin(folder)
        if (folder / _RECORDS).exists():
            records = pd.read_parquet(folder / _RECORDS)
        else:
            found = streams.records(streams.streams(folder))
            records = as_saved(plan, _with_unwritten(plan, folder, found), version)
            end = float(records["end"].max()) if len(records) else life.start
            owners = [(owner, max(version, life.version), end) for owner in plan.owners.ranks]
            records = cut(completed(plan, records), [], [*_went_back(folder), *owners])
            put(folder / _RECORDS, partial(records.to_parquet, index=False))
        end = float(records["end"].max()) if len(records) else life.start
        life = replace(life, start=max(end, _said(folder).get("ended") or end))
        frames.append(records)
    begins = following(plan, _read_begin(lives[-1]), version, saved, frames[-1])
    logs = [collect.interleaving(plan, folder) for folder in lives]
    log = logs[-1]  # processes that began anew have had numbers, too
    numbers = map(int, log["peer"][log["word"] == LIFE])
    number = max([begins.number, *(1 + before for before in numbers)])
    return replace(begins, number=number, start=life.start), frames, logs


def _with_unwritten(plan: Plan, life: Path, records: pd.DataFrame | None) -> pd.DataFrame:
    """What a life has recorded, and the gradients that the killed had no time to record."""
    more = [
        journal.unwritten(journal.read(file), worker, records)
        for worker in plan.workers
        for file in journal.journals_of(life, worker)
    ]
    return join([Recorder().frame() if records is None else records, *more])


def _went_back(folder: Path) -> list[tuple[int, int, float]]:
    """Servers that did so in a life that was killed."""
    file = folder / BACK
    return [tuple(each) for each in json.loads(file.read_text("utf-8"))] if file.exists() else []


def _lives(kept: Path) -> list[Path]:
    """The folders of the lives so far."""
    begun = (file.parent for file in kept.glob(f"life-*/{_BEGIN}"))
    return sorted(begun, key=lambda folder: int(folder.name.split("-")[1]))


def _joined(logs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The logs of all lives in one table, node by node."""
    found = [log for log in logs if len(log)] or logs[:1]
    return pd.concat(found).sort_values("node", kind="stable", ignore_index=True)


def _ended(plan: Plan, over: LifeOver, version: int) -> pd.DataFrame:
    """What counts of its records: of what was computed to its end alone, whenever processes were killed."""
    records = as_saved(plan, Recorder().frame() if over.records is None else over.records, version)
    return cut(records, [], [(owner, version, inf) for owner in plan.owners.ranks])


def _faults(plan: Plan, kept: Path, resume: bool) -> KeptFaults:
    """Those of a run, which may have been killed. Raises ScenarioError."""
    try:
        return KeptFaults(plan, kept, resume)
    except (OSError, ValueError, TypeError) as error:
        raise _unreadable(kept, error) from None


def _note_earlier(plan: Plan, faults: KeptFaults, until: float, recorder: Recorder) -> None:
    """What had befallen a run before it was killed, and who was back by then."""
    been: list[Fault] = [*faults.by_themselves]
    while faults.next is not None and faults.next.at < until:
        been.append(faults.pop())
        faults.befell(been[-1], been[-1].ranks)
    for fault in been:
        for rank in fault.ranks if plan.goes_on and fault.until < until else ():
            recorder.note("recovery", rank, min(noticed(plan.scenario, fault), fault.until), fault.until, -1)


def _note_lives(plan: Plan, kept: Path, faults: KeptFaults, recorder: Recorder) -> None:
    """The job went on with each life but the first: after a failure, or after it had died as a whole."""
    for before, said in pairwise(map(_said, _lives(kept))):
        if before.get("ended") is None:  # nobody was there to notice it: it was resumed
            faults.ended_all(plan, said["known"])
        recorder.note("recovery", -1, said["known"], said["start"], said["version"])


def _write_begin(own: Path, life: Incarnation, known: float | None, ended: float | None = None) -> None:
    """known: since when the failure of the life before is; ended: when that of this one was noticed, s."""
    said = {"number": life.number, "start": life.start, "version": life.version, "steps": dict(life.steps)}
    put_text(own / _BEGIN, json.dumps(said | {"known": known, "ended": ended}) + "\n")


def _said(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / _BEGIN).read_text(encoding="utf-8"))
    return found


def _read_begin(folder: Path) -> Incarnation:
    said = _said(folder)
    steps = {int(worker): int(made) for worker, made in said["steps"].items()}
    return Incarnation(said["number"], said["start"], said["version"], steps)
