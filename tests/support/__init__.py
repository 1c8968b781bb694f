"""What tests share: scenarios, commands to strike at, runs by hand."""

from pathlib import Path

ROOT = Path(__file__).parents[2]  # of the repository
ROOMS = (
    "analysis",
    "executor",
    "job",
    "lockstep",
    "scenarios",
    "simulator",
    "strategies",
    "studies",
    "workloads",
)
