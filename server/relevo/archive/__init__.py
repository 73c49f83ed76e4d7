"""How a month leaves the hot tables and comes back."""

import relevo.core.needs_server  # noqa: F401 ahead of all it needs
