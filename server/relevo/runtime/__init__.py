"""How a cycle runs: its time, its locks, its row, its leases."""

import relevo.core.needs_server  # noqa: F401 ahead of all it needs
