"""Where an address leads: whether it is one of the public internet."""

from __future__ import annotations

import ipaddress

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_private(address: str) -> bool:
    """Say whether an address is not one of the public internet, also if it is wrapped into another kind."""
    try:
        met = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    if isinstance(met, ipaddress.IPv6Address):
        wrapped = met.ipv4_mapped or met.sixtofour
        if met in _NAT64:
            wrapped = ipaddress.IPv4Address(int(met) & 0xFFFFFFFF)
        if wrapped:
            return is_private(str(wrapped))
    return not met.is_global or met.is_multicast


def is_loopback(address: str) -> bool:
    """Say whether an address is this very machine."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
