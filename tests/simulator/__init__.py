"""Virtual time: the network, processors and memory of a cluster."""
