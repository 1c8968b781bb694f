"""Runs that torchrun starts."""

SCENARIO = """
name: small
cluster:
  workers: 2
  servers: 1
  compute: {time: {distribution: constant, value: 10 ms}}
workload: {dataset: digits, model: mlp, batch_size: 32}
strategy: {name: synchronous, learning_rate: 0.2}
stop: {steps: 6}
seed: 7
"""
QUADRATIC = "workload={problem: quadratic}"

# The real program; when worker 0 tells how far it is, it tells this test too.
ENTRY = """
import os, pathlib
from lockstep.executor.__main__ import main
from lockstep.executor.port import RealPort

def looks(self, real=RealPort.look_for_the_end):
    if self.now > 1.5:  # what has been recorded by then is on disk, in part
        pathlib.Path(os.environ["PROGRESS"]).touch()
    real(self)

RealPort.look_for_the_end = looks
raise SystemExit(main())
"""

# The real program, where one process comes when the other has done its work but has not ended yet.
LATE = """
import os, sys, time
from lockstep.executor.__main__ import main

first = os.environ["RANK"] == "0"
time.sleep(0 if first else 3)
status = main()
time.sleep(6 if first else 0)
sys.exit(status)
"""
