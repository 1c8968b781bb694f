"""Runs a small scenario on two hosts, its processes started there by `ssh HOST`.

Lockstep must be installed at the same place on both, which must reach each other by the names given. The
processes meet as torchrun's do. A host's part ends with its ssh, and leaves nothing there.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryFile
from typing import IO

import pandas as pd

from lockstep.analysis import saved
from lockstep.analysis.result import Result
from lockstep.executor.launch import RunFailed
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, ScenarioError, dump

_PORTS = range(20_000, 30_000)  # for the processes to meet at on the first host
_LOOK_S, _BEAT_S = 0.1, 5.0
_LOST_S = 30  # without a sign from here, after which a host's part ends
_FILES = ("result.json", "records.parquet")  # of what `Result.save` writes
_MOST_BYTES = 1 << 30  # of one of them
_GRACE_S = 5.0  # for a host's part to end once the other's has failed
_OPTIONS = ("BatchMode=yes", "ConnectTimeout=30", "ServerAliveInterval=10", "ServerAliveCountMax=3")
_TELLING = (
    re.compile(r"(Signal (?!15)\d+ \(\w+\) received by PID \d+)"),  # torchrun's, of a process that is gone
    re.compile(r"(\d+ Killed)"),  # the shell's, of torchrun
    re.compile(r"^error: (.*)"),  # the executor's
)
_SILENT = {255: "ssh has no connection to it any more"}  # by status, of a part that has said nothing
# Its input is the run's key and the scenario, and then a byte now and then for as long as somebody wants the
# run; its output an archive of the result's files.
_PART = """
d=$(mktemp -d) || exit 1
export TMPDIR="$d"
trap 'rm -rf "$d"' EXIT
exec 3<&0
umask 077
head -c {key} > "$d/key"
head -c {length} > "$d/scenario.yaml"
cd {folder} 2>/dev/null
{python} -m torch.distributed.run --nnodes 2 --node-rank {node} --nproc-per-node {processes} \
  --master-addr {address} --master-port {port} -m lockstep.executor \
  "$d/scenario.yaml" --out "$d/out" --key "$d/key" \
  1>&2 3<&- &
run=$!
{{
  while [ -n "$(timeout {lost} head -c 1 <&3)" ]; do :; done
  kill $run
  for second in 1 2 3 4; do sleep 1; kill -0 $run || exit; done
  kill -9 $run  # while it looks for the other's, torchrun hears nothing
}} 2> /dev/null > /dev/null &
wait $run || exit 1
[ {node} = 0 ] || exit 0
cd "$d/out" && {python} -m tarfile -c "$d/run.tar" {files} && cat "$d/run.tar"
"""


def check(hosts: Sequence[str]) -> None:
    """Raise ScenarioError unless they are two."""
    if len(hosts) != 2 or not all(hosts) or any(host.startswith("-") for host in hosts):
        named = ", ".join(hosts) or "none"
        raise ScenarioError(f"must be two hosts, such as 'node1,node2', not {named}", key="--hosts")


def run_on(hosts: Sequence[str], scenario: Scenario) -> Result:
    """The result of a run: its workers are on the first host, its server, or last worker, on the other.

    Each host's times are by its own clock. Raises RunFailed: which host's part failed, and what it said.
    """
    key, text = os.urandom(32).hex().encode(), dump(scenario).encode()
    port = SystemRandom().choice(_PORTS)
    processes = len(Plan.of(scenario).roles)
    first = min(scenario.cluster.workers, processes - 1)
    with ExitStack() as stack:
        parts = []
        for node, (host, own) in enumerate(zip(hosts, (first, processes - first), strict=True)):
            said, records = stack.enter_context(TemporaryFile()), stack.enter_context(TemporaryFile())
            part = _PART.format(
                key=len(key),
                length=len(text),
                folder=shlex.quote(str(Path.cwd())),
                python=shlex.quote(sys.executable),
                node=node,
                processes=own,
                address=shlex.quote(hosts[0].rpartition("@")[2]),
                port=port,
                lost=_LOST_S,
                files=" ".join(_FILES),
            )
            try:
                ssh = subprocess.Popen(
                    ["ssh", *(f"-o{option}" for option in _OPTIONS), host, part],
                    stdin=subprocess.PIPE,
                    stdout=records,
                    stderr=said,
                )
            except FileNotFoundError:
                raise ScenarioError("needs ssh, which is not on the PATH", key="--hosts") from None
            stack.callback(_end, ssh)
            parts.append((host, ssh, said, records))
            _write(ssh, key + text)
        _wait(parts)
        return _unpacked(parts[0][3], hosts[0], scenario)


def _unpacked(archive: IO[bytes], host: str, scenario: Scenario) -> Result:
    """The result of the files in an archive that a host has sent.

    Its records are as they were written: between two clocks a message may end before it starts.
    """
    try:
        archive.seek(0)
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            metrics, records = (_member(tar, name) for name in _FILES)
        said = json.loads(metrics)
        disturbances = [str(line) for line in said["warnings"]] if said["disturbed"] else []
        table = pd.read_parquet(BytesIO(records))
    except (tarfile.TarError, *saved.UNREADABLE) as error:
        raise RunFailed(f"the part of host {host} sent no result ({saved.said(error)})") from None
    return Result("executor", Plan.of(scenario), table, 0.0, None, disturbances=disturbances)


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    member = tar.getmember(name)
    if not member.isreg() or member.size > _MOST_BYTES:
        raise ValueError(f"{name} is no file of at most {_MOST_BYTES} bytes")
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


_Part = tuple[str, "subprocess.Popen[bytes]", IO[bytes], IO[bytes]]


def _write(ssh: "subprocess.Popen[bytes]", text: bytes) -> None:
    assert ssh.stdin is not None
    with suppress(BrokenPipeError):  # it has failed already: _wait says why
        ssh.stdin.write(text)
        ssh.stdin.flush()


def _wait(parts: Sequence[_Part]) -> None:
    told = time.monotonic()
    running = True
    while running:
        running = any(
            ssh.poll() is None for _, ssh, *_ in parts
        )  # before the last look at how each has ended
        if time.monotonic() - told > _BEAT_S:
            told = time.monotonic()
            for _, ssh, *_ in parts:
                _write(ssh, b".")
        for host, ssh, said, _ in parts:
            if ssh.poll():
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines()
                raise _failure(host, lines or [_SILENT.get(ssh.returncode, f"status {ssh.returncode}")])
        time.sleep(_LOOK_S)


def _failure(host: str, lines: Sequence[str]) -> RunFailed:
    """What tells most of what a host's part has said; all of it too, if that may not tell enough."""
    told = (telling.search(line) for telling in _TELLING for line in lines)
    if found := next(filter(None, told), None):
        return RunFailed(f"the part of host {host} failed: {found[1]}")
    cause = [line for line in lines if "rror" in line] or lines
    details = "".join(f"{line}\n" for line in lines) if len(lines) > 1 else ""
    return RunFailed(f"the part of host {host} failed: {cause[-1].strip()}", details=details)


def _end(ssh: "subprocess.Popen[bytes]") -> None:
    """End a host's part, by the end of its input, if it has not ended."""
    assert ssh.stdin is not None
    with suppress(BrokenPipeError):
        ssh.stdin.close()
    try:
        ssh.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        ssh.kill()
        ssh.wait()
