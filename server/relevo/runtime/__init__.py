"""How a cycle runs: its time, its locks, its row, its leases."""
