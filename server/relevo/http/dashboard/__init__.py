"""The dashboard: pages for people, written on the server, that ask nobody else for anything."""

from __future__ import annotations

from relevo.http.dashboard import (
    action_pages,
    archive,
    audit,
    compose,
    dead_letters,
    deliveries,
    events,
    guide,
    login,
    overview,
    people,
    phones,
    runs,
    search,
    sources,
    system,
    test_push,
)

ROUTERS = (
    login.router,
    overview.router,
    system.router,
    search.router,
    events.router,
    deliveries.router,
    people.router,
    phones.router,
    guide.router,
    runs.router,
    sources.router,
    dead_letters.router,
    archive.router,
    audit.router,
    compose.router,
    test_push.router,
    action_pages.router,
    search.nowhere,  # the last
)
