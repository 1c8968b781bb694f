"""Runs against what is known by other means: papers by hand, closed forms, other strategies, SimGrid."""
