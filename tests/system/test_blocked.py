"""A process that is blocked in C for ever, as by a dead peer of NCCL: the run ends within the deadline.

Such a process hears no signal. Where C code keeps Python's lock, it gives no sign either.
"""

import time
from pathlib import Path

import pytest

import lockstep
from lockstep.executor.launch import RunFailed, execute
from lockstep.job.plan import Plan
from lockstep.scenarios.loading import made
from tests.support.commands import SLOWNESS, SOON
from tests.support.tasks import document, task, written

DEADLINE = 4 * SLOWNESS  # s
BLOCKS = """
import ctypes, pathlib, time

steps = 0

def first():
    try:
        with open("blocked", "x") as file:
            file.write(str(time.monotonic()))
    except FileExistsError:
        return False
    return True

def blocking(of):
    def loss(model, batch):
        global steps
        steps += 1
        if steps > 40 and first():
            libc, mutex = getattr(ctypes, of)(None), ctypes.create_string_buffer(64)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)  # which this thread has: it waits for ever, whatever signals come
        return nn.functional.cross_entropy(model(batch[0]), batch[1])
    return loss
"""


@pytest.mark.real
@pytest.mark.parametrize("of", ["CDLL", "PyDLL"], ids=["its other threads go on", "none of its threads does"])
def test_the_run_ends_and_its_records_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """The other worker waits for it in a collective, in C too."""
    written(tmp_path, task(more=BLOCKS, loss=f"blocking({of!r})"))
    monkeypatch.chdir(tmp_path)
    compute = {"time": {"distribution": "constant", "value": "50 ms"}}
    scenario = document(
        cluster={"workers": 2, "network": {}, "compute": compute},
        strategy={"name": "all-reduce", "algorithm": "native"},
        stop={"time": "10 min"},
    )
    said = r"worker.*(has|have) (not got on|given no sign) for"
    with pytest.raises(RunFailed, match=said):
        execute(Plan.of(made(scenario)), deadline_s=DEADLINE, out=tmp_path / "out")
    blocked = float((tmp_path / "blocked").read_text())
    assert time.monotonic() - blocked < DEADLINE + SOON
    kept = lockstep.records(tmp_path / "out")
    assert kept[kept["event"] == "gradient"].groupby("node").size().loc[[0, 1]].min() > 20
