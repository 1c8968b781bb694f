"""What a killed server leaves of a run that others go on with: who counts, and what is undone."""

import json
import time
from math import nan
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from lockstep.analysis import streams
from lockstep.analysis.entries import AGAIN, LIFE
from lockstep.analysis.incomplete import Incomplete
from lockstep.analysis.records import Recorder
from lockstep.executor import checkpoint_file, journal, lives
from lockstep.executor.deaths import KeptFaults
from lockstep.executor.injector import Injector
from lockstep.executor.interleaving import DurableInterleaving
from lockstep.executor.lives import resumed
from lockstep.executor.replacing import BACK, Replacing
from lockstep.executor.stores import HashStore
from lockstep.job import rounds
from lockstep.job.ending import ARRIVED
from lockstep.job.faults import Crash, Silent, Unforeseen
from lockstep.job.incarnation import FIRST, Incarnation, Saved
from lockstep.job.plan import Plan
from lockstep.job.recovery import Faults
from lockstep.scenarios import ScenarioError
from lockstep.scenarios.loading import made
from tests.support.failing import SERVER, document

RANK = 2  # of the server
PLAN = Plan.of(made(document(SERVER | {"at": "0 s"}, recovery={"on_failure": "continue"})))


class Dead:
    pid = None


@pytest.mark.parametrize("ended", [False, True])
def test_nothing_befalls_who_has_come_to_its_end(ended: bool) -> None:
    processes: Any = [Dead()] * 3
    injector = Injector(PLAN.scenario, Faults(PLAN), processes, HashStore(), None, lambda rank: ended)
    injector.begin(time.monotonic())
    until = time.monotonic() + 5
    while not ended and not injector.dead and time.monotonic() < until:
        time.sleep(1e-3)
    injector.end()
    assert [rank for rank, *_ in injector.dead] == ([] if ended else [RANK])


def test_who_is_killed_is_known_to_be_gone_before() -> None:
    """The launcher may look at any instant who has died, and why."""
    restart = Plan.of(made(document(SERVER | {"at": "0 s"})))
    known: list[bool] = []

    class Watching:
        @property
        def pid(self) -> None:
            known.append(injector.is_noticed_later([RANK]))

    processes: Any = [Watching()] * 3
    injector = Injector(restart.scenario, Faults(restart), processes, HashStore(), None, lambda rank: False)
    injector.begin(time.monotonic())
    until = time.monotonic() + 5
    while not known and time.monotonic() < until:
        time.sleep(1e-3)
    injector.end()
    assert known == [True]


class Forgetful:
    def forget(self, rank: int) -> None:
        pass


def test_a_server_that_goes_back_is_no_longer_at_the_last_version(tmp_path: Path) -> None:
    store, hub, kept = HashStore(), Forgetful(), tmp_path / "life-0"
    kept.mkdir()
    DurableInterleaving(kept, RANK).note("count", ARRIVED, number=1)
    store.add(ARRIVED, 1)
    replacing = Replacing(PLAN, tmp_path, kept, hub, store, FIRST)  # type: ignore[arg-type]
    life = replacing.bury(RANK, Crash(1.0, 1.5, 0, (RANK,)), 1.0)
    assert store.add(ARRIVED, 0) == 0
    assert life is not None
    assert (life.start, life.version) == (1.5, 0)
    assert replacing.back == [(RANK, 0, 1.5)]
    assert json.loads((kept / BACK).read_text()) == [[RANK, 0, 1.5]]


def test_a_run_that_is_resumed_knows_what_servers_had_undone(tmp_path: Path) -> None:
    kept = tmp_path / "life-0"
    kept.mkdir()
    (kept / "begin.json").write_text(json.dumps({"number": 0, "start": 0.0, "version": 0, "steps": {}}))
    recorder = Recorder()
    for version in range(3):
        recorder.update(RANK, 0, 1.0 + version, version, 0, 1)
    stream = streams.Stream(streams.file_of(kept, RANK, streams.RECORDS))
    columns = streams.columns_of(*recorder.drain())
    assert columns is not None
    stream.write(columns)
    stream.close()
    checkpoint_file.write(tmp_path / f"checkpoint-3-{RANK}.npz", Saved(3, 0, ()))
    (kept / BACK).write_text(json.dumps([[RANK, 1, 2.5]]))
    log = DurableInterleaving(kept, RANK)
    log.note(LIFE)
    log.note(LIFE, AGAIN, peer=4)
    life, (records,), _ = resumed(PLAN, tmp_path)
    assert [*records.sort_values("end")["event"]] == ["update", "undone", "update"]
    assert life.number == 5  # draws of those before do not come again


ENTRY = Struct("=idd")  # of a journal


def _begun(kept: Path, steps: dict[str, int]) -> None:
    kept.mkdir()
    begin = {"number": 0, "start": 0.0, "version": 0, "steps": steps}
    (kept / "begin.json").write_text(json.dumps(begin))


def test_what_a_dead_worker_had_noted_is_there_for_a_run_that_is_resumed(tmp_path: Path) -> None:
    """The launcher, which knows it, may be killed, too, before the others have written anything."""
    kept = tmp_path / "life-0"
    _begun(kept, {})
    journal.journal_of(kept, 1).write_bytes(ENTRY.pack(0, 0.1, 0.3) + ENTRY.pack(1, 0.3, nan))
    replacing = Replacing(PLAN, tmp_path, kept, Forgetful(), HashStore(), FIRST)  # type: ignore[arg-type]
    life = replacing.bury(1, Crash(0.5, 1.5, 0, (1,)), 0.5)
    assert life is not None
    assert life.steps == {1: 1}
    journal.journal_of(kept, 1).write_bytes(ENTRY.pack(1, 1.5, 1.7))
    _, (records,), _ = resumed(PLAN, tmp_path)
    assert [*zip(records["version"], records["start"], strict=True)] == [(0, 0.1), (1, 1.5)]


def test_who_dies_before_its_first_gradient_goes_on_where_its_life_began(tmp_path: Path) -> None:
    kept = tmp_path / "life-0"
    kept.mkdir()
    began = Incarnation(3, 10.0, 20, {1: 25})
    replacing = Replacing(PLAN, tmp_path, kept, Forgetful(), HashStore(), began)  # type: ignore[arg-type]
    life = replacing.bury(1, Crash(10.5, 11.5, 0, (1,)), 10.5)
    assert life is not None
    assert life.steps == {1: 25}


def test_what_is_in_the_checkpoint_of_replicas_was_made_by_all_of_them() -> None:
    """The first one's records are on disk with it, and of those of who was killed some are not."""
    plan = Plan.of(made(document(strategy={"name": "all-reduce", "algorithm": "ring"})))
    recorder = Recorder()
    for version in range(7):
        recorder.update(0, 0, 1.0 + version, version, 0, 1)
    for version in range(3):
        recorder.update(1, 1, 1.001 + version, version, 0, 1)
    found = rounds.as_saved(plan, recorder.frame(), 5)
    made_by = found[found["event"] == "update"].groupby("node")["version"].agg(list)
    assert [*map(sorted, made_by)] == [[*range(7)], [*range(5)]]


def test_deaths_that_nobody_planned_are_known_to_a_run_that_is_resumed(tmp_path: Path) -> None:
    faults = KeptFaults(PLAN, tmp_path, resume=False)
    faults.befell(Unforeseen(1.0, 1.5, -1, (0,)), [0])
    faults.befell(Silent(3.0, 4.0, -1, (0, 1)), [0, 1])
    recorder = Recorder()
    KeptFaults(PLAN, tmp_path, resume=True).record(recorder, 10.0)
    told = recorder.frame()[["node", "start", "end", "kind"]].astype({"kind": str}).to_numpy().tolist()
    assert told == [[0, 1.0, 1.5, "crash"], [0, 3.0, 4.0, "hang"], [1, 3.0, 4.0, "hang"]]
    assert not KeptFaults(PLAN, tmp_path, resume=False).by_themselves
    with Incomplete(tmp_path, PLAN.scenario) as folder:
        KeptFaults(PLAN, folder.folder, resume=False).befell(Unforeseen(1.0, 1.5, -1, (0,)), [0])
        folder.discard()
    assert not folder.folder.exists()


def test_a_run_that_was_killed_before_it_began_is_resumed(tmp_path: Path) -> None:
    """Found by chaos: there is no log yet."""
    kept = tmp_path / "life-0"
    kept.mkdir()
    (kept / "begin.json").write_text(json.dumps({"number": 0, "start": 0.0, "version": 0, "steps": {}}))
    life, *_ = resumed(PLAN, tmp_path)
    assert (life.number, life.version, life.start) == (1, 0, 0.0)


def test_who_is_gone_is_not_lost_again_when_its_link_counts_as_failed() -> None:
    """Found by reading: the second return ended the thread that lets processes fail."""
    cut = {"link": {"host": 1}, "at": "10 ms", "down_for": "600 ms"}  # noticed at 310 ms
    later = {"worker": 0, "at": "700 ms", "crash": True, "back_after": "50 ms"}
    plan = Plan.of(made(document(cut, later, recovery={"on_failure": "continue"})))
    ended: set[int] = set()
    processes: Any = [Dead()] * 3
    injector = Injector(plan.scenario, Faults(plan), processes, HashStore(), None, ended.__contains__)
    injector.begin(time.monotonic())
    time.sleep(0.1)
    crash = Crash(0.1, 0.5, 9, (1,))
    injector._lose([1], crash)
    time.sleep(0.9)
    injector.end()
    assert [(rank, fault.item) for rank, fault, _ in injector.dead] == [(1, 9), (0, 1)]
    assert not injector.gone


def test_what_was_computed_to_its_end_counts_whenever_its_process_was_killed() -> None:
    """A kill comes some milliseconds late; what was pushed before is in the parameters."""
    crash = Crash(0.5, 1.0, 0, (1,))
    over = lives.LifeOver(crash, 0.8, {1: crash}, [])
    recorder = Recorder()
    recorder.gradient(1, 0.45, 0.503, 5)
    over.records = recorder.frame()
    (kept,) = lives._ended(PLAN, over, 6).itertuples()
    assert (kept.kind, kept.end) == ("", 0.503)


BEGUN = {"number": 0, "start": 0.0, "version": 0, "steps": {}}


def test_a_run_is_resumed_when_it_was_given_up(tmp_path: Path) -> None:
    """Or what ended it would strike again."""
    kept = tmp_path / "life-0"
    kept.mkdir()
    (kept / "begin.json").write_text(json.dumps(BEGUN | {"ended": 2.5}))
    recorder = Recorder()
    recorder.gradient(0, 0.0, 1.0, 0)
    recorder.frame().to_parquet(kept / "records.parquet", index=False)
    life, *_ = resumed(PLAN, tmp_path)
    assert life.start == 2.5


def test_each_death_of_a_whole_run_is_a_failure_but_not_one_that_was_noticed_already(tmp_path: Path) -> None:
    """Killed at 2 s, again before anything came of it, and once more after a failure that ended a life."""
    told = [(None, None), (2.0, None), (2.0, 7.0), (7.0, None), (9.0, None)]
    for number, (known, ended) in enumerate(told):
        (tmp_path / f"life-{number}").mkdir()
        begin = BEGUN | {"number": number, "start": known or 0.0, "known": known, "ended": ended}
        (tmp_path / f"life-{number}" / "begin.json").write_text(json.dumps(begin))
    recorder = Recorder()
    faults = KeptFaults(PLAN, tmp_path, resume=True)
    lives._note_lives(PLAN, tmp_path, faults, recorder)
    faults.record(recorder, 10.0)
    records = recorder.frame()
    faulty = records[records["event"] == "fault"]
    assert [*faulty["start"]] == [*faulty["left"]] == [*faulty["end"]] == [2.0] * 3 + [9.0] * 3
    assert [*faulty["node"]] == [0, 1, 2] * 2
    assert [*records[records["event"] == "recovery"]["start"]] == [2.0, 2.0, 7.0, 9.0]


@pytest.mark.parametrize("name", ["begin.json", "back.json", "records.parquet"])
def test_a_damaged_file_of_a_life_is_named(name: str, tmp_path: Path) -> None:
    kept = tmp_path / "life-0"
    kept.mkdir()
    (kept / "begin.json").write_text(json.dumps(BEGUN))
    (kept / name).write_text('{"numb')
    with pytest.raises(ScenarioError, match=r"--resume: .* cannot be read \("):
        resumed(PLAN, tmp_path)
