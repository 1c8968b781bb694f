"""One process of a run that torchrun started: torchrun … -m executor SCENARIO [--out DIR].

The world has the workers first, then the servers: torchrun needs `--nproc-per-node` × nodes = workers +
servers processes (workers alone for a strategy without servers). Rank 0 writes the result. When a process
dies, torchrun names it and ends the others of its host, and these those of other hosts; the first of them
writes the records of all, on its host.
"""

import argparse
import os
import signal
import socket
import sys
import time
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread

import pandas as pd
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from analysis.records import save_records
from executor import addresses, collect, companions, process, signals
from executor.meeting import wait_for
from executor.parent import end_with_parent
from executor.testbed import Seat
from scenarios import Scenario, ScenarioError, dump, load
from strategies import StrategyError, fits
from workloads import sizes

_SETTLE_S = 1.0  # in which torchrun tells the others that a process has been killed


@record
def main() -> int:
    """Exit status: 0 fine, 2 bad input, 3 the host where the processes meet is gone, 143 told to end."""
    parser = argparse.ArgumentParser(prog="torchrun … -m executor")
    parser.add_argument("scenario", help="a scenario file, or the name of a shipped one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where rank 0 writes the result")
    options = parser.parse_args()
    if "GROUP_RANK" not in os.environ:
        parser.error("it is one process of many; start them with torchrun")
    for number in signals.ENDING:
        signal.signal(number, signals.terminate)
    end_with_parent()
    try:
        store, rank, world = next(dist.rendezvous("env://"))
        over = Event()
        host, hosts = (int(os.environ[f"GROUP_{what}"]) for what in ("RANK", "WORLD_SIZE"))
        if hosts > 1:
            companions.watch(store, host, hosts, over, leads=os.environ["LOCAL_RANK"] == "0")
        return _main(options, store, rank, world, over)
    except signals.Terminated:
        return 128 + signal.SIGTERM
    except (dist.DistNetworkError, dist.DistStoreError) as error:
        print(f"error: {process.repr_line(error)}", file=sys.stderr, flush=True)
        return 3


def _main(options: argparse.Namespace, store: dist.Store, rank: int, world: int, over: Event) -> int:
    try:
        scenario = load(options.scenario, options.set, _check)
        _same(scenario, store)
        _run(scenario, store, rank, world, options.out, over)
    except ScenarioError as error:
        if store.add("complaints", 1) == 1:  # the first to find it says so: torchrun ends the others
            print(f"error: {error}", file=sys.stderr, flush=True)
        companions.tell(store, f"rank {rank} on {socket.gethostname()} has bad input")
        return 2
    except process.StoreGone as gone:
        if options.out is not None:
            _save(scenario, gone.outcome.records, options.out / f"rank-{rank}")
        return 3
    return 0


def _check(scenario: Scenario) -> None:
    try:
        process.everyone(scenario)
        fits(scenario.strategy.name, scenario.strategy.parameters, scenario.cluster)
    except StrategyError as error:
        raise ScenarioError(error.problem, key=error.key) from error
    sizes(scenario.workload)


def _same(scenario: Scenario, store: dist.Store) -> None:
    """Raise ScenarioError unless all processes have read the same scenario."""
    own = dump(scenario)
    first = store.compare_set("scenario", "", own).decode()
    for ours, theirs in zip_longest(own.splitlines(), first.splitlines(), fillvalue="nothing"):
        if ours != theirs:
            host = socket.gethostname()
            raise ScenarioError(
                f"the scenario differs from that of another process: {ours.strip()!r} on {host}, "
                f"{theirs.strip()!r} there; give all hosts the same file and options"
            )


def _run(scenario: Scenario, store: dist.Store, rank: int, world: int, out: Path | None, over: Event) -> None:
    needed = len(process.everyone(scenario))
    if world != needed:
        workers = scenario.cluster.workers
        parts = f"{workers} for workers, {needed - workers} for servers"
        raise ScenarioError(f"the scenario needs {needed} processes ({parts}), torchrun started {world}")
    learner = None
    if rank == 0:
        _check_out(out)
        learner = collect.evaluator(scenario)
    if learner is not None and scenario.stop.target_accuracy is not None:
        watch = collect.Watch(scenario, store, learner)
        Thread(target=_follow, args=(watch, over), daemon=True).start()
    try:
        address = addresses.own_address(store, rank, world, os.environ["MASTER_ADDR"])
        if card := addresses.card_of(address):  # otherwise gloo takes whatever the host's name stands for
            os.environ.setdefault("GLOO_SOCKET_IFNAME", card)
        process.participate(scenario, rank, store, Seat(address))
        over.set()
        if rank == 0:
            result = collect.result(scenario, store, learner)
            if out is not None:
                result.save(out)
            print(result.to_json(), flush=True)
    except BaseException as error:
        over.set()
        if isinstance(error, process.StoreGone):
            raise
        companions.tell(store, f"rank {rank} on {socket.gethostname()}: {process.repr_line(error)}")
        if out is not None and (world == 1 or not _is_culprit(error, store)):
            with signals.handled(signal.SIG_IGN, *signals.ENDING):
                _keep(scenario, store, world, out)
        raise
    store.add("meet/end of all", 1)
    if rank == 0:  # the store may live in this process
        wait_for(store, "end of all", world)


def _follow(watch: collect.Watch, over: Event) -> None:
    while not over.wait(0.1):
        watch.look()


def _check_out(out: Path | None) -> None:
    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        reason = f"cannot write to {str(out)!r}: {error.strerror}; give another folder"
        raise ScenarioError(reason, key="--out") from None


def _is_culprit(error: BaseException, store: dist.Store) -> bool:
    """Whether this process is the first to fail, so that torchrun ends the others only once it has ended."""
    if isinstance(error, signals.Terminated) or store.add("failed", 1) > 1:
        return False
    try:
        time.sleep(_SETTLE_S)
    except signals.Terminated:  # another one was killed
        return False
    return True


def _keep(scenario: Scenario, store: dist.Store, world: int, out: Path) -> None:
    """Write what a run that did not end well has measured, unless another process does."""
    if store.add("keepers", 1) > 1:
        return
    collect.await_outcomes(store, lambda: range(world))
    records = collect.records_so_far(store, world)
    if records is None:
        return
    _save(scenario, records, out)


def _save(scenario: Scenario, records: pd.DataFrame, out: Path) -> None:
    save_records(scenario, records, out)
    where = f"{out / 'records.parquet'} on {socket.gethostname()}"
    print(f"What was measured until then: {where}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
