"""How a delivery is sent: claimed, journalled, posted, settled."""

import relevo.core.needs_server  # noqa: F401 ahead of all it needs
