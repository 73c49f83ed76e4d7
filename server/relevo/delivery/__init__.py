"""How a push is sent: claimed, composed, sent, settled, a folder each; `projects` is what a project may do."""

import relevo.core.needs_server  # noqa: F401 ahead of all it needs
