"""The verbs for asynchronous connections, under the name that apps import; they are in client/aio.py."""

from relevo.client.aio import *  # noqa: F403
