"""Browsers' subscriptions: an endpoint is an address that a stranger chose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

import orjson

from relevo.core import push_hosts
from relevo.core.addresses import is_private
from relevo.providers.es256 import unpadded
from relevo.providers.http_connection import RefusedAddressError, Resolve
from relevo.providers.lookups import Lookups
from relevo.providers.webpush.encryption import POINT_BYTES, SECRET_BYTES

_MAX_TOKEN = 4_096
_KEPT = 2_000
"""Subscriptions that are read once: a batch checks each of its own, and encrypts for it a moment later."""
_URL = re.compile(r"[!-~]{1,2048}", re.ASCII)


class Subscription(NamedTuple):
    """Where a browser's pushes go, and what they are encrypted with."""

    origin: str
    place: str
    """Host and port, the port only if it is not 443."""
    path: str
    point: bytes
    secret: bytes


def read(token: object) -> Subscription:
    """Read the JSON text of a subscription; raises ValueError with what is wrong."""
    if not isinstance(token, str) or not 0 < len(token) <= _MAX_TOKEN:
        raise ValueError("it is no text of 1 to 4,096 characters")
    return _read(token)


@lru_cache(maxsize=_KEPT)
def _read(token: str) -> Subscription:
    try:
        document = orjson.loads(token)
        endpoint, keys = document["endpoint"], document["keys"]
        point, secret = unpadded(keys["p256dh"]), unpadded(keys["auth"])
    except (ValueError, TypeError, KeyError):
        raise ValueError("it is not like {endpoint, keys: {p256dh, auth}} with the keys in base64url") from None
    if len(point) != POINT_BYTES or point[0] != 4 or len(secret) != SECRET_BYTES:  # noqa: PLR2004 not compressed
        raise ValueError("p256dh must be a point of 65 bytes, and auth 16 bytes")
    place, path = split(endpoint)
    return Subscription(f"https://{place}", place, path, point, secret)


def split(endpoint: object) -> tuple[str, str]:
    """Return an endpoint's host with its port, and its path; raises ValueError."""
    parts = urlsplit(endpoint) if isinstance(endpoint, str) and _URL.fullmatch(endpoint) else None
    name = parts.hostname if parts else None
    if parts is None or parts.scheme != "https" or not name or "@" in parts.netloc:
        raise ValueError("its endpoint is no address like https://host/path")
    host = f"[{name}]" if ":" in name else name
    query = f"?{parts.query}" if parts.query else ""
    return push_hosts.place_of(host, parts.port or None), f"{parts.path or '/'}{query}"


def resolver(lookups: Lookups, *, allow_private: bool) -> Resolve:
    """Return what looks a push service up, and refuses one that leads to a private address."""

    def resolve(host: str, port: int, patience_s: float) -> Sequence[str]:
        found = lookups.addresses(host, port, patience_s)
        if not allow_private and any(map(is_private, found)):
            raise RefusedAddressError(
                f"{host} leads to a private address; if it is yours, name it in `hosts` or WEBPUSH_HOSTS"
            )
        return found

    return resolve
