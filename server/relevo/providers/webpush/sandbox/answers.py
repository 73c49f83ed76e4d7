"""Answers of a Web Push service, with Mozilla's numbers beside the status."""

from __future__ import annotations

from typing import Any

from relevo.sandbox.answers import HttpResponse, Refused, in_json

_TOLD: dict[int, tuple[int, str, str]] = {
    301: (0, "Moved Permanently", "The subscription has another address now."),
    400: (110, "Bad Request", "A header is missing or wrong."),
    401: (109, "Unauthorized", "The VAPID header is missing or wrong."),
    403: (109, "Forbidden", "The key is not the one this subscription is bound to."),
    404: (102, "Not Found", "There is no such subscription."),
    405: (0, "Method Not Allowed", "Use POST here."),
    406: (0, "Not Acceptable", "Throttled: too many notifications for this channel."),
    410: (106, "Gone", "The subscription has ended."),
    413: (104, "Payload Too Large", "The body has more than 4,096 bytes."),
    415: (110, "Unsupported Media Type", "The content encoding must be aes128gcm."),
    429: (0, "Too Many Requests", "Too many messages for this subscription."),
    500: (999, "Internal Server Error", "An unknown error."),
    502: (950, "Bad Gateway", "A service behind this one does not answer."),
    503: (201, "Service Unavailable", "The service is overloaded."),
}
_HEADERS = {
    301: {"location": "https://localhost/push/moved"},
    405: {"allow": "POST"},
    429: {"retry-after": "2"},
}


def refused(status: int, message: str = "") -> Refused:
    """Refuse a request with an error."""
    errno, error, default = _TOLD[status]
    told: dict[str, Any] = {"code": status, "errno": errno, "error": error, "message": message or default}
    return Refused(in_json(told, status, _HEADERS.get(status, {})))


def taken(location: str, ttl: int) -> HttpResponse:
    """Answer that a message was taken, with the address it has from now on."""
    return HttpResponse(201, b"", "", {"location": location, "ttl": str(ttl)})


CODES: dict[str, HttpResponse] = {str(status): refused(status).answer for status in _TOLD}
