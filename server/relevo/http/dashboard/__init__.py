"""The dashboard: pages for people, written on the server, that ask nobody else for anything."""

from __future__ import annotations

from relevo.http.dashboard import guide, login, overview

ROUTERS = (login.router, overview.router, guide.router)
