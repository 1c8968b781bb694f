"""One process of a run that torchrun started: torchrun … -m lockstep.executor SCENARIO [--out DIR].

torchrun needs `--nproc-per-node` × nodes = workers + servers processes (workers alone for a strategy without
servers). The servers are spread over the hosts, each the last of its host's processes. Rank 0 writes the
result, and has the hub to which all report. When a process dies, torchrun names it and ends the others of its
host, and the hub those of other hosts. What each process has recorded is on its host then, in OUT/incomplete.
"""

import argparse
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from lockstep.executor import addresses, blame, collect, evaluating, folder, joining, process, signals
from lockstep.executor.barrier import barrier, wait_for
from lockstep.executor.heartbeat import BAD_INPUT, repr_line
from lockstep.executor.hub import Hub
from lockstep.executor.launch import INSIDE, check_room, path_s
from lockstep.executor.parent import end_with_parent
from lockstep.executor.remote import HubGone
from lockstep.job.plan import Plan
from lockstep.scenarios import Scenario, ScenarioError, load
from lockstep.scenarios.code import trusting
from lockstep.workloads import try_metrics
from lockstep.workloads.heap import use_large_pages

_LOOK_S = 0.1  # how often rank 0 looks after the run
_HEARD_S = 2.0  # for the others to hear that the run ends


@record
def main() -> int:
    """Exit status: 0 fine, 2 bad input, 3 the host where the processes report is gone, 143 told to end."""
    use_large_pages()
    options = _options()
    for number in signals.ENDING:
        signal.signal(number, signals.terminate)
    try:
        with ExitStack() as stack:
            return _main(options, stack)
    except signals.Terminated:
        return 128 + signal.SIGTERM
    except ScenarioError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    except (dist.DistNetworkError, dist.DistStoreError, HubGone) as error:
        print(f"error: {repr_line(error)}", file=sys.stderr, flush=True)
        return 3


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torchrun … -m lockstep.executor")
    parser.add_argument("scenario", help="a scenario file, or the name of a shipped one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where rank 0 writes the result")
    parser.add_argument(
        "--trust", action="store_true", help="run code that the scenario names wherever it lies"
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help="several hosts: the key that all have")
    parser.add_argument(
        "--ports", type=joining.ports, metavar="FIRST-LAST", help="several hosts: listen there"
    )
    parser.add_argument("--interface", metavar="NAME", help="several hosts: the network card to listen at")
    parser.add_argument(
        "--deadline", type=joining.seconds, metavar="SECONDS", help="how long one may not get on"
    )
    options = parser.parse_args()
    if "GROUP_RANK" not in os.environ:
        parser.error("it is one process of many; start them with torchrun")
    return options


def _main(options: argparse.Namespace, stack: ExitStack) -> int:
    plan = _plan(options)
    own = joining.join(options, stack, len(plan.workers) if isinstance(plan, Plan) else None)
    store, heartbeat = own.control.store, own.control.heartbeat
    end_with_parent(last_words=lambda: folder.leave(own.control.private))
    here = f"rank {own.rank} on {socket.gethostname()}"
    try:
        if isinstance(plan, ScenarioError):
            raise plan
        _run(own, options, stack, plan)
    except ScenarioError as error:
        folder.await_siblings(own.control.private)
        with suppress(OSError):
            (own.control.private / BAD_INPUT).touch()
        with suppress(HubGone, dist.DistNetworkError, dist.DistStoreError):  # rank 0 has found it, and gone
            if store.add("complaints", 1) == 1:  # the first to find it says so: torchrun ends the others
                print(f"error: {error}", file=sys.stderr, flush=True)
            heartbeat.end_all(f"{here} {BAD_INPUT}")
        with signals.handled(signal.SIG_IGN, *signals.ENDING):
            _leave_nothing(own, str(error))
        return 2
    except BaseException as error:
        heartbeat.fail(repr_line(error), traceback.format_exc())
        heartbeat.end_all(f"{here}: {repr_line(error)}")
        with signals.handled(signal.SIG_IGN, *signals.ENDING):
            _wait_for_the_others(own, error)
            if _has_bad_input(own):
                _leave_nothing(own, repr_line(error))
            elif own.incomplete is not None:
                own.incomplete.keep(None, repr_line(error))
            _say_what_is_left(own, options.out)
        raise
    return 0


def _has_bad_input(own: joining.Joined) -> bool:
    """Whether a process of this host has complained of its input, or this one has heard of another's."""
    heard = own.control.heartbeat.asked_to_end.endswith(BAD_INPUT)
    return heard or (own.control.private / BAD_INPUT).exists()


def _leave_nothing(own: joining.Joined, why: str) -> None:
    """The run has not begun: nothing of it stays, unless something has been recorded all the same."""
    if own.incomplete is not None and not own.incomplete.undo():
        own.incomplete.keep(None, why)


def _plan(options: argparse.Namespace) -> Plan | ScenarioError:
    """The plan of the run; or what is wrong with the scenario, which the others are to hear of, too."""
    try:
        with trusting(options.trust):
            plan = Plan.of(load(options.scenario, options.set, Plan.of))
        try_metrics(plan.scenario.workload)
        return plan
    except ScenarioError as error:
        return error


def _run(own: joining.Joined, options: argparse.Namespace, stack: ExitStack, plan: Plan) -> None:
    """Take part in the run; rank 0 writes and prints the result."""
    control, learner, out, scenario = own.control, None, options.out, plan.scenario
    if scenario.with_faults:
        key = "cluster.faults" if scenario.cluster.faults else "recovery.checkpoint"
        raise ScenarioError("not built yet under torchrun; 'lockstep run' has it", key=key)
    joining.agree(scenario, control.store)
    needed = len(plan.roles)
    if own.world != needed:
        workers = scenario.cluster.workers
        parts = f"{workers} for workers, {needed - workers} for servers"
        raise ScenarioError(f"the scenario needs {needed} processes ({parts}), torchrun started {own.world}")
    check_room(plan, joining.of_this_host(len(plan.workers)))
    joining.begin_records(own, scenario, out, stack)
    barrier(control.store, "folders for records", own.world)
    names, over = [role.name for role in plan.roles], Event()
    if own.hub is not None:
        if scenario.workload.learns:
            learner = evaluating.Apart(scenario)
            stack.callback(learner.close)
        watch = collect.Watch(plan, control.store, control.private, learner)
        own.hub.watchdog.senders = plan.senders
        own.hub.watchdog.path_s = path_s(plan, _rate(scenario, own))
        following = Thread(target=_follow, args=(own.hub, watch, names, over), daemon=True)
        following.start()
        stack.callback(over.set)
    # Else gloo takes the card that the host's name stands for.
    card = "lo" if control.place.address is None else addresses.card_of(control.place.address)
    if card is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", card)
    process.participate(plan, own.rank, control)
    if own.hub is not None:
        over.set()
        following.join()  # it may evaluate
        result = collect.result(plan, control.private, control.kept, learner)
        result = collect.seen(result, own.hub, names)
        stolen = collect.stolen(control.private, range(own.world))
        result = replace(result, disturbances=[*result.disturbances, *stolen])
        if out is not None:
            result.save(out)
        print(result.to_json(), flush=True)
    if own.incomplete is not None:
        own.incomplete.discard()
    control.store.add("barrier/end of all", 1)
    if own.rank == 0:  # the store is in this process
        wait_for(control.store, "end of all", own.world)


def _rate(scenario: Scenario, own: joining.Joined) -> float | None:
    return INSIDE if own.control.place.address is None else scenario.cluster.network.bandwidth


def _follow(hub: Hub, watch: collect.Watch, names: Sequence[str], over: Event) -> None:
    while not over.wait(_LOOK_S):
        try:
            watch.look()
        except Exception as error:
            if not over.is_set():  # else the run has ended otherwise, and with it what evaluates
                hub.tell(f"its parameters cannot be evaluated: {_in_words(error)}")
            return
        if stall := hub.stall():
            hub.tell(blame.stalled(stall, names, hub.about))


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, ScenarioError | RuntimeError) else repr_line(error)


def _wait_for_the_others(own: joining.Joined, error: BaseException) -> None:
    """Let the others write down what they have, and be told to end, before torchrun hears of an end."""
    if own.hub is not None:
        collect.await_outcomes(own.control.private, lambda: range(own.world))
    elif not isinstance(error, signals.Terminated):
        time.sleep(_HEARD_S)


def _say_what_is_left(own: joining.Joined, out: Path | None) -> None:
    """One process of a host says where the records are."""
    if out is not None and any(own.control.kept.glob("rank-*")):
        with suppress(FileExistsError):
            (own.control.private / "said-what-is-left").touch(exist_ok=False)
            where = f"{own.control.kept} on {socket.gethostname()}"
            print(f"What was measured until then: {where}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
