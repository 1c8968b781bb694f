"""The keys of what `--json` prints, and their types: DESIGN §5."""

from typing import Any

NULL = type(None)
KEYS: dict[str, Any] = {
    "schema": int, "engine": str, "scenario": str, "seed": int, "workers": int, "strategy": str,
    "duration_s": float, "updates": int, "updates_per_s": float, "samples": int, "throughput": float,
    "dropped": int,
    "staleness": {"mean": float, "p50": int, "p99": int, "max": int, "histogram": dict},
    "speedup": float, "efficiency": float, "bytes_sent": int, "memory_bytes": int,
    "breakdown": {"compute": float, "update": float, "network": float, "wait": float},
    "breakdown_by_worker": {"compute": list, "update": list, "send": list, "network": list, "wait": list},
    "utilisation": (dict, NULL), "bottleneck": str,
    "loss": float, "accuracy": float, "metrics": {}, "target": float, "target_metric": str,
    "time_to_target_s": float,
    "parameters_sha256": str, "disturbed": bool, "attempts": int, "warnings": list,
}  # fmt: skip
LEARNED = ("loss", "accuracy", "target", "target_metric", "time_to_target_s", "parameters_sha256")


def check_types(found: dict[str, Any], expected: dict[str, Any], null: tuple[str, ...] = ()) -> None:
    assert list(found) == list(expected)
    for key, kind in expected.items():
        if isinstance(kind, dict):
            check_types(found[key], kind)
        elif key in null:
            assert found[key] is None, key
        else:
            assert type(found[key]) in (kind if isinstance(kind, tuple) else (kind,)), key
