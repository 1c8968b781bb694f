"""Runs a scenario of two processes on two hosts, each started there by `ssh HOST`.

Lockstep must be installed at the same place on both, which must reach each other by the names given. The
processes meet as torchrun's do. A host's part ends with its ssh, and leaves nothing there.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryFile
from typing import IO

import pandas as pd

from executor.launch import RunFailed
from scenarios import Scenario, ScenarioError, dump

_PORTS = range(20_000, 30_000)  # for the processes to meet at on the first host
_LOOK_S = 0.1
_GRACE_S = 5.0  # for a host's part to end once the other's has failed
# Its input is the scenario, and then open for as long as somebody wants the run; its output the records.
_PART = """
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
exec 3<&0
head -c {length} > "$d/scenario.yaml"
cd {folder} 2>/dev/null
{python} -m torch.distributed.run --nnodes 2 --node-rank {rank} --nproc-per-node 1 \
  --master-addr {address} --master-port {port} -m executor "$d/scenario.yaml" --out "$d/out" 1>&2 3<&- &
run=$!
{{ cat <&3 > /dev/null; kill $run; }} 2> /dev/null > /dev/null &
wait $run || exit 1
[ {rank} != 0 ] || cat "$d/out/records.parquet"
"""


def check(hosts: Sequence[str]) -> None:
    """Raise ScenarioError unless they are two."""
    if len(hosts) != 2 or not all(hosts) or any(host.startswith("-") for host in hosts):
        named = ", ".join(hosts) or "none"
        raise ScenarioError(f"must be two hosts, such as 'node1,node2', not {named}", key="--hosts")


def run_on(hosts: Sequence[str], scenario: Scenario) -> pd.DataFrame:
    """The records of a run whose first process is on the first host, and whose second on the other.

    Each host's times are by its own clock. Raises RunFailed: which host's part failed, and what it said.
    """
    text, port = dump(scenario).encode(), SystemRandom().choice(_PORTS)
    with ExitStack() as stack:
        parts = []
        for rank, host in enumerate(hosts):
            said, records = stack.enter_context(TemporaryFile()), stack.enter_context(TemporaryFile())
            part = _PART.format(
                length=len(text),
                folder=shlex.quote(str(Path.cwd())),
                python=shlex.quote(sys.executable),
                rank=rank,
                address=shlex.quote(hosts[0].rpartition("@")[2]),
                port=port,
            )
            try:
                ssh = subprocess.Popen(
                    ["ssh", "-o", "BatchMode=yes", host, part],
                    stdin=subprocess.PIPE,
                    stdout=records,
                    stderr=said,
                )
            except FileNotFoundError:
                raise ScenarioError("needs ssh, which is not on the PATH", key="--hosts") from None
            stack.callback(_end, ssh)
            assert ssh.stdin is not None
            parts.append((host, ssh, said, records))
            with suppress(BrokenPipeError):  # it has failed already: _wait says why
                ssh.stdin.write(text)
                ssh.stdin.flush()
        _wait(parts)
        records = parts[0][3]
        records.seek(0)
        return pd.read_parquet(BytesIO(records.read()))


_Part = tuple[str, "subprocess.Popen[bytes]", IO[bytes], IO[bytes]]


def _wait(parts: Sequence[_Part]) -> None:
    while any(ssh.poll() is None for _, ssh, *_ in parts):
        for host, ssh, said, _ in parts:
            if ssh.poll():
                said.seek(0)
                lines = said.read().decode(errors="replace").strip().splitlines()
                told = [line for line in lines if "rror" in line] or lines or [f"status {ssh.returncode}"]
                raise RunFailed(
                    f"the part of host {host} failed: {told[-1].strip()}", details="\n".join(lines)
                )
        time.sleep(_LOOK_S)


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
