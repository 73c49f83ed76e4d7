"""Where an address leads: whether it is one of the public internet.

`is_global` of the standard library takes addresses for public that wrap a private one (NAT64, ISATAP, Teredo, 6to4).
"""

from __future__ import annotations

import ipaddress

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST = ipaddress.ip_network("2000::/3")
"""The only part of IPv6 that was ever given to the internet; beyond it are old and local forms of addresses."""
_NOT_PUBLIC = (
    ipaddress.ip_network("2001::/32"),  # Teredo, which leads through a tunnel to an IPv4 address
    ipaddress.ip_network("3fff::/20"),  # for documentation, unknown to older Pythons
    ipaddress.ip_network("192.88.99.0/24"),  # the next way into 6to4, wherever that is
)
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
_SUBSCRIBER = 64
"""How many bits of an IPv6 address name the network of one subscriber."""


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def parsed(text: str) -> Address | None:
    """Return the address that a text is, maybe with its zone; None if it is a name."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def without_mapping(text: str) -> Address | None:
    """Return the address that a text is, without zone: IPv4 also where a socket of IPv6 wrote it; None for a name."""
    met = parsed(text)
    return (met.ipv4_mapped or ipaddress.IPv6Address(int(met))) if isinstance(met, ipaddress.IPv6Address) else met


def subscriber_of(address: str) -> str:
    """Return by what a caller is counted: of IPv6 the network of one subscriber, who has addresses without number."""
    met = without_mapping(address)
    if isinstance(met, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((met, _SUBSCRIBER), strict=False))
    return address if met is None else str(met)


def is_private(address: str) -> bool:
    """Return whether an address is not one of the public internet, also if it is wrapped into another kind."""
    met = parsed(address)
    if met is None:
        return True
    if isinstance(met, ipaddress.IPv6Address):
        if (wrapped := _wrapped(met)) is not None:
            return is_private(str(wrapped))
        if met not in _UNICAST:
            return True
    return not met.is_global or met.is_multicast or any(met in each for each in _NOT_PUBLIC)


def _wrapped(met: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for, if it is of a form that leads there."""
    last = ipaddress.IPv4Address(int(met) & 0xFFFFFFFF)
    is_isatap = int(met) >> 32 & 0xFFFFFFFF in _ISATAP
    if met in _NAT64 or (is_isatap and is_private(str(last))):
        return last
    return met.ipv4_mapped or met.sixtofour


def is_local(host: str) -> bool:
    """Return whether a name or an address is that of this very machine."""
    met = parsed(host)
    return host == "localhost" if met is None else met.is_loopback
