"""The configuration file, `relevo.yaml`: read, compared with the database, applied, and written from a database."""

import relevo.core.needs_server  # noqa: F401 ahead of all it needs
