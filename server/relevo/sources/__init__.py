"""Where items come from: one file per adapter of the Source port."""

import relevo.core.needs_server  # noqa: F401 ahead of all it needs
