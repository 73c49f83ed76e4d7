"""The dashboard: pages for people, written on the server, that ask nobody else for anything."""

from __future__ import annotations

from relevo.http.dashboard import (
    action_pages,
    compose,
    dead_letters,
    deliveries,
    events,
    guide,
    login,
    overview,
    people,
    search,
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
    guide.router,
    dead_letters.router,
    compose.router,
    test_push.router,
    action_pages.router,
    search.nowhere,  # the last
)
