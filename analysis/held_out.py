"""How far off predictions were where they were held against real runs that nothing was fitted to."""

# docs/accuracy.md; tests/analysis/test_report_brief.py holds them against it.
THROUGHPUT_ERRORS = (0.006, 0.038, 0.052)
"""Of throughput: the median, the 90th percentile, the maximum."""
TIME_TO_TARGET_ERROR = 0.043
"""Of the worst strategy, the median over seeds."""
MEASURED_WORKERS = 12
"""The most that the accuracy suite runs."""
