"""Which proxy leads to an address, if any.

requests' `should_bypass_proxies` sets a variable of the whole process while it looks; urllib's knows no networks.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from relevo.core.addresses import Address, is_local, parsed

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Proxies:
    """The proxies an operator named, by the scheme of what they lead to, and what is reached without one."""

    http: str | None = field(default=None, repr=False)
    https: str | None = field(default=None, repr=False)
    direct: tuple[str, ...] = ()
    """Names, which stand for their subdomains too, addresses and networks, each maybe with a port; or `*`."""

    def for_url(self, url: str) -> str | None:
        """Return the proxy that leads to a web address, or None if it is reached directly, as loopback always is."""
        parts = urlsplit(url)
        proxy = self.https if parts.scheme == "https" else self.http
        if proxy is None:
            return None
        host = (parts.hostname or "").rstrip(".")
        address, port = parsed(host), parts.port or _PORTS.get(parts.scheme, 0)
        if is_local(host):
            return None
        return None if any(_names(entry, host, address, port) for entry in self.direct) else proxy


def _names(entry: str, host: str, address: Address | None, port: int) -> bool:
    """Return whether an entry of NO_PROXY names a host."""
    name, wanted = _without_port(entry.lower())
    if name == "*":
        return True
    if wanted and wanted != str(port):
        return False
    if address is not None:
        try:
            return address in ipaddress.ip_network(name, strict=False)
        except ValueError:
            return False
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _without_port(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name, port.removeprefix(":")
    if entry.count(":") == 1:  # more of them are an IPv6 address
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""
