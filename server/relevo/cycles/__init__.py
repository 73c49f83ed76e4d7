"""The cycles: each file is one duty, each step one bounded batch."""

import relevo.needs_server  # noqa: F401 ahead of all it needs
