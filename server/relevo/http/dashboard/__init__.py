"""The dashboard: pages for people, written on the server, that ask nobody else for anything."""

from __future__ import annotations

from relevo.http.dashboard import (
    compose,
    deliveries,
    events,
    guide,
    login,
    operator_actions,
    people,
    search,
    sessions,
    sign_on,
    system,
    test_push,
)

ROUTERS = (
    login.router,
    sign_on.router,
    system.router,
    events.router,
    deliveries.router,
    people.router,
    guide.router,
    compose.router,
    test_push.router,
    operator_actions.router,
    sessions.router,
    search.router,  # the last
)
