"""One process of a run that torchrun started: torchrun … -m executor SCENARIO [--out DIR].

The world has the workers first, then the servers: torchrun needs `--nproc-per-node` × nodes = workers +
servers processes (workers alone for a strategy without servers). Rank 0 writes the result.
"""

import argparse
import sys

import torch.distributed as dist

from executor import collect
from executor.process import participate, world_size
from executor.transport import own_address
from scenarios import ScenarioError, load
from strategies import StrategyError


def main() -> int:
    """Exit status: 0 fine, 2 bad input."""
    parser = argparse.ArgumentParser(prog="torchrun … -m executor")
    parser.add_argument("scenario", help="a scenario file, or the name of a shipped one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", metavar="DIR", help="where rank 0 writes the result")
    options = parser.parse_args()
    store, rank, world = next(dist.rendezvous("env://"))
    try:
        scenario = load(options.scenario, options.set)
        needed = world_size(scenario)
        if world != needed:
            raise ScenarioError(f"it needs {needed} processes (workers + servers), torchrun started {world}")
    except (ScenarioError, StrategyError) as error:
        if rank == 0:
            print(f"error: {error}", file=sys.stderr)
        return 2
    participate(scenario, rank, store, own_address(_store_host()))
    if rank == 0:
        result = collect.result(scenario, store)
        if options.out:
            result.save(options.out)
        print(result.to_json())
    store.add("read", 1)
    while store.add("read", 0) < world:  # the store may live in rank 0's process
        pass
    return 0


def _store_host() -> str:
    import os

    return os.environ["MASTER_ADDR"]


if __name__ == "__main__":
    sys.exit(main())
