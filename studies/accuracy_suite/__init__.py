"""Holds predictions against measured runs over a grid of scenarios, and sums up how far off they are."""
