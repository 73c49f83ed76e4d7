"""Faithful local push services with faults on demand: Expo, and the native push services beside it.

For demos, tests, benchmarks and work without a network.
"""

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

from relevo.sandbox.server import MAX_NATIVE_PORT, Sandbox, has_native, serve
from relevo.sandbox.settings import Settings

__all__ = ["MAX_NATIVE_PORT", "Sandbox", "Settings", "has_native", "serve"]
