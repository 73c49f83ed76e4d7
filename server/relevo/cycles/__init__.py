"""The cycles: each file is one duty, each step one bounded batch."""

import relevo.core.needs_server  # noqa: F401 ahead of all it needs
