"""Where Web Push goes: the hosts of the known browsers, for the address of a subscription is chosen by a phone."""

from __future__ import annotations

from collections.abc import Iterable

from relevo.providers.webpush.facts import HOSTS

HTTPS_PORT = 443


class Hosts:
    """The push services that pushes may go to: the known ones, and those an operator named.

    A place is a host in small letters, with its port if that is not 443.
    """

    def __init__(self, *named: Iterable[str]) -> None:
        further = [host.lower() for each in named for host in each]
        self._named = frozenset(host for host in further if not host.startswith("."))
        self._known = frozenset(host for host in HOSTS if not host.startswith("."))
        self._below = tuple(host for host in (*HOSTS, *further) if host.startswith("."))

    def allows(self, place: str) -> bool:
        """Return whether pushes may go to a place."""
        return self.names(place) or place.endswith(self._below)

    def names(self, place: str) -> bool:
        """Return whether just this one is known, and not only the domain above it: there phones may make names up."""
        return place in self._known or place in self._named

    def trusts(self, place: str) -> bool:
        """Return whether an operator named just this one: then it may be in a network of their own."""
        return place in self._named


def place_of(host: str, port: int | None) -> str:
    """Return a host with its port, which is left out where it is the usual one."""
    return host if port in (None, HTTPS_PORT) else f"{host}:{port}"
