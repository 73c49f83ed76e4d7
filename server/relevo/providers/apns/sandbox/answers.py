"""Answers of APNs: an empty one with an id, or a reason."""

from __future__ import annotations

import json
import time

from relevo.sandbox.answers import HttpResponse

_REASONS = {
    400: (
        "BadCollapseId",
        "BadDeviceToken",
        "BadExpirationDate",
        "BadMessageId",
        "BadPriority",
        "BadTopic",
        "DeviceTokenNotForTopic",
        "DuplicateHeaders",
        "IdleTimeout",
        "InvalidPushType",
        "MissingDeviceToken",
        "MissingTopic",
        "PayloadEmpty",
        "TopicDisallowed",
    ),
    403: (
        "BadCertificate",
        "BadCertificateEnvironment",
        "BadEnvironmentKeyIdInToken",
        "BadEnvironmentKeyInToken",
        "ExpiredProviderToken",
        "Forbidden",
        "InvalidProviderToken",
        "MissingProviderToken",
        "UnrelatedKeyIdInToken",
    ),
    404: ("BadPath",),
    405: ("MethodNotAllowed",),
    410: ("ExpiredToken", "Unregistered"),
    413: ("PayloadTooLarge",),
    429: ("TooManyProviderTokenUpdates", "TooManyRequests"),
    500: ("InternalServerError",),
    503: ("ServiceUnavailable", "Shutdown"),
}
STATUS = {reason: status for status, reasons in _REASONS.items() for reason in reasons}
_GONE = 410


def refused(reason: str, apns_id: str = "") -> HttpResponse:
    """Answer with a reason, and when the token is gone with since when, which is now."""
    status = STATUS[reason]
    told: dict[str, object] = {"reason": reason}
    if status == _GONE:
        told["timestamp"] = int(1000 * time.time())
    return HttpResponse(
        status, json.dumps(told, separators=(",", ":")).encode(), "", {"apns-id": apns_id} if apns_id else {}
    )


def taken(apns_id: str, unique_id: str | None = None) -> HttpResponse:
    """Answer that a notification was taken; the sandbox environment names it once more."""
    headers = {"apns-id": apns_id}
    if unique_id is not None:
        headers["apns-unique-id"] = unique_id
    return HttpResponse(200, b"", "", headers)


CODES: dict[str, HttpResponse] = {reason: refused(reason) for reason in STATUS}
