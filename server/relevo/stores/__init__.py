"""Where exported months are kept: one file per store."""

import relevo.core.needs_server  # noqa: F401 ahead of all it needs
