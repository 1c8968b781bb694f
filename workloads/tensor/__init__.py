"""Layers that are cut between devices: what each device computes, and where they meet."""
