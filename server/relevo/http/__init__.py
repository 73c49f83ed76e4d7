"""The HTTP face: routes on the app's verbs and on `operators/`; who may call what stands in `rules`."""

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs
