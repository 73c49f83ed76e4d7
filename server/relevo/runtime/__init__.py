"""How a cycle runs: its time, its locks, its row, its leases."""

import relevo.needs_server  # noqa: F401 ahead of all it needs
