"""An accelerator that is no GPU: copies, streams, wrong devices (tests/support/accelerator).

Its CPU computes, so real runs on it have the bits of runs on the CPU; what is not waited for reads as NaN.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pandas as pd
import pytest

import lockstep
from lockstep.scenarios.loading import made
from tests.support import accelerator
from tests.support.commands import HANGS
from tests.support.device_jobs import COUNTS, MODEL, SERVED, STRATEGIES, job, served
from tests.support.failing import CRASH, SERVER
from tests.support.failing import document as faulty
from tests.support.tasks import document, task, written

pytestmark = [
    pytest.mark.nightly,  # half a minute of a compiler
    pytest.mark.skipif(shutil.which("g++") is None or shutil.which("ninja") is None, reason="no compiler"),
]
LOCKSTEP = Path(sys.executable).with_name("lockstep")


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return accelerator.built(tmp_path_factory.mktemp("accelerator"))


def python(backend: Path, folder: Path, *words: str) -> str:
    """What Python says in a folder, with the accelerator."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=accelerator.environment(backend), timeout=HANGS, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_what_is_not_waited_for_is_not_there(backend: Path, tmp_path: Path) -> None:
    """So the tests below would fail without the waiting that they are of."""
    said = python(backend, tmp_path, "-c", dedent("""
        import torch
        import lockstep
        from lockstep.executor import collect, devices
        from lockstep.executor.backward import Beside

        device = torch.device("fake:1")
        assert devices.kind() == "fake" and devices.visible() == ("FAKE-0", "FAKE-1")
        assert devices.own() == "fake:0" and devices.named("fake:0") == "fake"
        devices.use(device)
        assert torch.accelerator.current_device_index() == 1
        late = torch.empty(4, pin_memory=True)
        late.copy_(torch.ones(4, device=device), non_blocking=True)
        assert late.isnan().all()
        assert (devices.to_host(torch.ones(4, device=device)) == 1).all()
        there = devices.to_device(torch.full((4,), 2.0), device)
        assert there.device == device and (there.cpu() == 2).all()
        try:
            there + torch.ones(4, device="fake:0")
        except RuntimeError as error:
            assert "same device" in str(error)
        else:
            raise AssertionError

        def compute(ready):
            gradient = torch.arange(8.0, device=device)
            ready(4, gradient)
            return gradient

        beside = Beside(device)
        found = beside.backward(compute, [4], lambda: 0.0)
        found.done.flag.wait()
        found.parts[0].block()
        assert found.parts[0]._gradient.cpu().tolist() == list(range(8))
        beside.end()
        assert collect.evaluator(lockstep.load("quickstart")).device.type == "fake"
        print("fine")
    """))  # fmt: skip
    assert said.strip().endswith("fine")


def test_large_bodies_go_from_device_to_device(backend: Path, tmp_path: Path) -> None:
    """A piece of memory is one body's until its receiver has copied it, and then the next one's."""
    said = python(backend, tmp_path, "-c", dedent("""
        import threading
        from pathlib import Path

        import torch
        import torch.distributed as dist
        from lockstep.executor.device_bodies import agree
        from lockstep.executor.devices import Place
        from lockstep.executor.sockets import Place as Socket
        from lockstep.executor.transport import Transport
        from tests.support import accelerator

        GPUS = ("FAKE-0", "FAKE-1")
        places = [Place("a", GPUS, "fake"), Place("a", GPUS, "fake"), Place("b", ("FAKE-7",), "fake"),
                  Place("a", GPUS, "fake"), Place("a", (), "cpu")]  # servers, one on the GPU of a worker
        devices = [torch.device("fake", index) for index in (0, 1, 0, 0)] + [torch.device("cpu")]
        many = range(len(places))
        store = dist.HashStore()
        ends = [
            Transport(store, rank, Socket(Path.cwd()), torch.zeros(70_000), many) for rank in many
        ]

        def join(rank):
            ends[rank].on_devices = agree(store, rank, places, devices[rank])

        threads = [threading.Thread(target=join, args=(rank,)) for rank in many]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [end.on_devices and end.on_devices.readers for end in ends]
        assert found == [{1, 3}, {0, 3}, None, {0, 1}, None]

        def send(to, number):
            body = torch.full((50_000,), float(number), device=devices[0])
            ends[0].send(to, ("reply", 0, number, 0, 0, 1.0, [], 0.0), body)

        def received(rank):
            with torch.Stream(devices[0]):  # another process's: it waits for nothing that the sender does
                return ends[rank].receive(5.0)

        def right(header, body):
            return len(body) == 50_000 and body.cpu().eq(header[2]).all()

        send(1, 1)
        send(1, 2)
        pieces = ends[0].on_devices._pieces[1]
        assert len(pieces) == 2
        both = [received(1), received(1)]
        send(1, 3)  # where one of them lay
        torch.accelerator.synchronize(devices[0])
        assert all(right(*each) for each in both) and both[0][1].device == devices[1]
        for number in range(4, 9):
            assert right(*received(1))
            send(1, number)
        assert len(pieces) == 2 and right(*received(1))
        send(2, 9)  # another host's: through the host's memory
        assert ends[2].receive(5.0)[1].device.type == "cpu"
        send(3, 10)  # where it lies already, but in memory of another process
        assert right(*received(3))
        ends[1].forget(0), ends[0].forget(1)
        assert ends[0].on_devices.readers == {3}
        assert not accelerator.handles  # each that was offered has been taken: torch counts them
        for end in ends:
            end.let_go()
        assert not any(end.on_devices and end.on_devices._mapped for end in ends)
        for end in ends:
            end.close()
        print("fine")
    """))  # fmt: skip
    assert said.strip().endswith("fine")


@pytest.mark.real
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_on_it_has_the_bits_of_one_on_the_cpu(backend: Path, tmp_path: Path, name: str) -> None:
    """Gradients in parts go beside messages only where times are measured."""
    ends_with_the_same_bits(backend, tmp_path, job(STRATEGIES[name]), "cluster.device")


@pytest.mark.real
@pytest.mark.parametrize("name", SERVED)
def test_servers_on_it_have_the_bits_of_servers_on_the_cpu(backend: Path, tmp_path: Path, name: str) -> None:
    """Two of them, or one and its relay, have a device each, which a worker has, too."""
    changed = served(SERVED[name])
    ends_with_the_same_bits(backend, tmp_path, changed, "cluster.device", "cluster.servers.device")
    log = pd.read_parquet(tmp_path / "there" / "interleaving.parquet")
    begun = log[log["word"] == "begin"].sort_values("node")["kind"].str.split().str[0]
    assert [*begun] == ["fake:0", "fake:1"] * 2


@pytest.mark.real
@pytest.mark.parametrize(
    ("strategy", "fault"),
    [({"name": "synchronous"}, SERVER), ({"name": "synchronous"}, CRASH),
     ({"name": "diloco", "averaging_period": 2}, CRASH)],
)  # fmt: skip
def test_who_is_on_it_goes_on_from_a_checkpoint(
    backend: Path, tmp_path: Path, strategy: dict[str, Any], fault: Any
) -> None:
    more: dict[str, Any] = {"strategy": {**strategy, "optimizer": "adam"}, "stop": {"updates": 30}}
    changed = faulty(fault, cluster={"servers": {"device": "auto"}}, **more)
    (tmp_path / "my.yaml").write_text(json.dumps(changed))
    python(backend, tmp_path, str(LOCKSTEP), "run", "my.yaml", "--quiet", "--out", "there")
    assert json.loads((tmp_path / "there" / "result.json").read_text())["failures"] == 1
    whole = lockstep.simulate(made(faulty(**more))).parameters
    assert np.array_equal(np.load(tmp_path / "there" / "parameters.npy"), whole)


def ends_with_the_same_bits(backend: Path, folder: Path, changed: dict[str, Any], *keys: str) -> None:
    """A run on it, in `there`, and one on the CPU, in `here`, by the values of these keys."""
    written(folder, task(MODEL, more=COUNTS))
    (folder / "my.yaml").write_text(json.dumps(changed))
    for device, out in (("auto", "there"), ("cpu", "here")):
        chosen = [word for key in keys for word in ("--set", f"{key}={device}")]
        python(backend, folder, str(LOCKSTEP), "run", "my.yaml", "--quiet", *chosen, "--out", out)
    there, here = (np.load(folder / out / "parameters.npy") for out in ("there", "here"))
    assert np.array_equal(there, here)
    assert np.isfinite(there).all()


@pytest.mark.real
def test_calibration_times_it(backend: Path, tmp_path: Path) -> None:
    """And counts no cores, of which its gradients take none."""
    written(tmp_path, task(MODEL, more=COUNTS))
    (tmp_path / "my.yaml").write_text(json.dumps(document()))
    python(backend, tmp_path, "-c", dedent("""
        import sys
        from lockstep.calibration import compute, layers
        compute._LEAST_S = layers._LEAST_S = 0.05
        from lockstep import cli
        sys.argv[1:] = "calibrate my.yaml --only compute --only cores --out mine.yaml --quiet".split()
        cli.main()
    """))  # fmt: skip
    profile = (tmp_path / "mine.yaml").read_text()
    assert "device: fake" in profile
    assert "cores_per_host" not in profile


@pytest.mark.real
def test_a_run_asks_whether_it_has_room(backend: Path, tmp_path: Path) -> None:
    """Three workers and two devices: two have to fit there, or the run does not begin."""
    written(tmp_path, task(MODEL, more=COUNTS))
    large = document(stop={"steps": 2})
    large["cluster"]["workers"] = 3
    (tmp_path / "my.yaml").write_text(json.dumps(large))

    def run(free: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [LOCKSTEP, "run", "my.yaml", "--quiet"], cwd=tmp_path, timeout=HANGS, text=True, check=False,
            env=accelerator.environment(backend) | {"FAKE_MEMORY": str(free)}, capture_output=True,
        )  # fmt: skip

    done = run(9_000_000)
    assert done.returncode == 2, done.stderr
    problem = "worker 0 and worker 2 would take 0.00911 GB of the GPU's memory, and 0.009 GB is free there; "
    assert done.stderr.startswith(f"error: cluster.device: {problem}")
    assert run(10_000_000).returncode == 0
