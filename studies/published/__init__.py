"""Clusters that others measured: a few numbers fitted, all other rows predicted (docs/published.md)."""
