"""What the clock judges; each test needs the machine for itself."""
