"""Measures what a scenario's cluster takes for granted: how fast this machine and its network really are."""
