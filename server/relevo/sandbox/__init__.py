"""A faithful local Expo push service with faults on demand, for demos, tests, benchmarks and work without a network."""

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

from relevo.sandbox.server import Sandbox, serve
from relevo.sandbox.settings import Settings

__all__ = ["Sandbox", "Settings", "serve"]
