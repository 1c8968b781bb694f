"""Commands that are forked from the tests' fork server, which has imported what they need: seconds less each.

Such a command is what `python -c program arguments` starts, in a session of its own: the same arguments,
environment, folder, signals, exit status and ways to end, and a fork server and a resource tracker of its own
(tests/system/test_forked.py compares). Not covered: whatever happens while modules are imported
(test_executor_failures.py interrupts the installed command there), what libraries read from the environment
then, and an error that nobody catches, before whose traceback multiprocessing has a line. Its parent is
the fork server, sys.path is that of the tests, and pipes to both are open in it.
"""

import atexit
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import reload
from multiprocessing import context, forkserver, get_context, process, resource_tracker, util
from pathlib import Path
from typing import Any

from lockstep.executor.fork_server import start_fork_server
from lockstep.executor.forking import no_main_module

_started = util.spawnv_passfds


class Forked:
    """As subprocess.Popen, of `python -c program arguments`, with what it prints in two files."""

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stdout: Path,
        stderr: Path,
    ) -> None:
        start_fork_server()
        given = (program, [*arguments], dict(environment), Path.cwd(), stdout, stderr)
        self._process = get_context("forkserver").Process(target=_run, args=given)
        with no_main_module():
            self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("lockstep", timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    program: str, arguments: list[str], environment: dict[str, str], folder: Path, stdout: Path, stderr: Path
) -> None:
    """What is forked: forget whose child it is, and be the command."""
    from lockstep.executor import orphan

    os.setsid()
    os.chdir(folder)
    for descriptor, path in ((1, stdout), (2, stderr)):
        os.dup2(file := os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    _hear_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    atexit.unregister(orphan._tidy_up)  # that was for the fork server of the tests
    servers: Any = forkserver._forkserver, resource_tracker._resource_tracker  # type: ignore[attr-defined]
    os.close(servers[0]._forkserver_alive_fd)
    os.close(servers[1]._fd)
    for server in servers:
        server.__init__()
    vars(process.current_process())["_config"].pop("tempdir", None)
    vars(context._default_context)["_actual_context"] = None
    vars(process)["_parent_process"] = None
    tempfile.tempdir = None
    vars(util)["spawnv_passfds"] = _fork_if_fork_server
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    finally:  # as Python ends, and multiprocessing's children do not
        vars(threading)["_shutdown"]()
        atexit._run_exitfuncs()


def _hear_signals() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _fork_if_fork_server(path: Any, words: Sequence[str], descriptors: Sequence[int]) -> int:
    """What multiprocessing starts for the command; its fork server is forked from the command."""
    code = words[-1]
    if "forkserver" not in code:
        return _started(path, words, descriptors)
    if pid := os.fork():
        return pid
    try:
        from lockstep.executor import orphan

        _close_all_but({0, 1, 2, *descriptors})
        gc.freeze()  # nobody closes anything again
        atexit._clear()
        reload(orphan)
        _hear_signals()
        vars(forkserver._forkserver)["_lock"] = threading.Lock()  # type: ignore[attr-defined]
        exec(code, {})  # until nobody needs it any more
    except SystemExit:
        pass
    finally:
        atexit._run_exitfuncs()
        os._exit(1)


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):  # the list's own
                os.close(int(name))
