"""A local page to play with: `lockstep serve`."""
