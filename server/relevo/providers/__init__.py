"""Push services, each an adapter of the PushProvider port."""

import relevo.core.needs_server  # noqa: F401 ahead of all it needs
