"""Real commands, hosts, the testbed and strangers; the layers; and what the documentation says."""
