"""How long a sweep of 1,000 small points takes: 8 workers × 200 iterations each, sizes only.

python benchmarks/sweep_speed.py [POINTS]      start-up, the plan and the table included
"""

import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

SCENARIO = """
name: sweep-speed
cluster:
  workers: 8
  network: {{bandwidth: 10 Gbit/s, latency: 50 us}}
  compute: {{time: {{distribution: exponential, mean: 20 ms}}}}
workload: {{parameters: 1_000_000, batch_size: 8}}
strategy: {{name: downpour, communication_window: 5}}
stop: {{steps: 200}}
sweep:
  strategy.name: [synchronous, asynchronous, downpour, ssp, all-reduce]
  cluster.network.bandwidth: [1 Gbit/s, 10 Gbit/s, 25 Gbit/s, 100 Gbit/s]
  seeds: {seeds}
"""
COMMAND = [sys.executable, "-c", "from lockstep.cli import main; main()", "sweep"]


def main() -> None:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with TemporaryDirectory() as folder:
        file = Path(folder) / "scenario.yaml"
        file.write_text(SCENARIO.format(seeds=max(1, points // 20)))
        for what in ("all of it", "again, with nothing left to do"):
            begin = time.monotonic()
            command = [*COMMAND, str(file), "--out", f"{folder}/out", "--quiet"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            print(f"{max(1, points // 20) * 20} runs, {what}: {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
