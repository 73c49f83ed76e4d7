"""Which pages the menu leaves out: those of what is not used here."""

from __future__ import annotations

import time

import psycopg
from fastapi import Request
from starlette.datastructures import State

from relevo.config import Settings
from relevo.core.errors import RelevoError
from relevo.http.guard import COOKIE
from relevo.operators import fleet

SOURCES, ARCHIVE = "/dashboard/sources", "/dashboard/archive"
_KNOWN_FOR_S = 60.0


async def look(request: Request) -> None:
    """Find out once a minute, for whoever is logged in, whether there is something of what no setting speaks of."""
    state: State = request.app.state
    settings: Settings = state.relevo.settings
    if COOKIE not in request.cookies or not request.url.path.startswith("/dashboard"):
        return
    if _by_settings(settings) >= {SOURCES, ARCHIVE} or time.monotonic() < getattr(state, "menu_known_until", 0.0):
        return
    state.menu_known_until = time.monotonic() + _KNOWN_FOR_S
    try:
        found = await state.threads.run(fleet.used)
    except (psycopg.Error, RelevoError):
        return
    state.menu_found = {path for path, name in ((SOURCES, "sources"), (ARCHIVE, "archive")) if found[name]}


def unused(request: Request) -> set[str]:
    """Return the pages that the menu leaves out."""
    found: set[str] = getattr(request.app.state, "menu_found", set())
    return {SOURCES, ARCHIVE} - _by_settings(request.app.state.relevo.settings) - found


def _by_settings(settings: Settings) -> set[str]:
    """Return the pages of what the settings speak of."""
    told = {SOURCES: settings.sources, ARCHIVE: settings.archive_bucket or settings.archive_folder}
    return {path for path, value in told.items() if value}
