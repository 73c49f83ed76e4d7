"""Answers of FCM: the taken message, and its errors in their form."""

from __future__ import annotations

import json
from typing import Any

from relevo.sandbox.answers import HTML, HttpResponse, Refused, gateway_page, in_json

_TYPE = "type.googleapis.com/"
_JSON = "application/json; charset=UTF-8"


def error(status: int, name: str, message: str, *details: dict[str, Any]) -> HttpResponse:
    """Answer with an error of Google's form."""
    told: dict[str, Any] = {"code": status, "message": message, "status": name}
    if details:
        told["details"] = list(details)
    return HttpResponse(status, json.dumps({"error": told}, indent=2).encode(), _JSON)


def of_fcm(code: str) -> dict[str, Any]:
    """Return the detail that names an error of FCM's own."""
    return {"@type": f"{_TYPE}google.firebase.fcm.v1.FcmError", "errorCode": code}


def violation(field: str, description: str) -> dict[str, Any]:
    """Return the detail that names a field of the request."""
    found = [{"field": field, "description": description}]
    return {"@type": f"{_TYPE}google.rpc.BadRequest", "fieldViolations": found}


def quota(subject: str, description: str) -> dict[str, Any]:
    """Return the detail that says whose quota is used up."""
    found = [{"subject": subject, "description": description}]
    return {"@type": f"{_TYPE}google.rpc.QuotaFailure", "violations": found}


def info(reason: str) -> dict[str, Any]:
    """Return the detail that gives a reason of Google's common interfaces."""
    return {"@type": f"{_TYPE}google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}


def bad_request(field: str, description: str) -> Refused:
    """Refuse a message that is not valid."""
    told = f"Invalid value at '{field}': {description}"
    return Refused(error(400, "INVALID_ARGUMENT", told, violation(field, description)))


def over_quota(project: str, limit: float) -> HttpResponse:
    """Refuse what goes beyond a project's messages a minute."""
    told = quota(f"project:{project}", f"More than {limit:g} messages in a minute.")
    return error(429, "RESOURCE_EXHAUSTED", "The project's quota is used up.", of_fcm("QUOTA_EXCEEDED"), told)


def taken(name: str) -> HttpResponse:
    """Answer that a message was taken."""
    return HttpResponse(200, json.dumps({"name": name}).encode(), _JSON)


CODES: dict[str, HttpResponse] = {
    "UNREGISTERED": error(404, "NOT_FOUND", "The app instance is not registered any more.", of_fcm("UNREGISTERED")),
    "INVALID_ARGUMENT": error(400, "INVALID_ARGUMENT", "This is no registration token.", of_fcm("INVALID_ARGUMENT")),
    "BAD_REQUEST": bad_request("message.android.ttl", "The sandbox was told to find fault with this field.").answer,
    "SENDER_ID_MISMATCH": error(
        403, "PERMISSION_DENIED", "The token belongs to another sender.", of_fcm("SENDER_ID_MISMATCH")
    ),
    "PERMISSION_DENIED": error(
        403, "PERMISSION_DENIED", "The account may not send messages of this project.", info("IAM_PERMISSION_DENIED")
    ),
    "THIRD_PARTY_AUTH_ERROR": error(
        401, "UNAUTHENTICATED", "The key for APNs or Web Push is missing or wrong.", of_fcm("THIRD_PARTY_AUTH_ERROR")
    ),
    "APNS_AUTH_ERROR": error(
        401, "UNAUTHENTICATED", "The key for APNs is missing or wrong.", of_fcm("APNS_AUTH_ERROR")
    ),
    "UNAUTHENTICATED": error(
        401, "UNAUTHENTICATED", "The access token is missing, wrong or expired.", info("ACCESS_TOKEN_EXPIRED")
    ),
    "QUOTA_EXCEEDED": over_quota("relevo-sandbox", 600_000),
    "DEVICE_QUOTA_EXCEEDED": error(
        429,
        "RESOURCE_EXHAUSTED",
        "Too many messages for this device.",
        of_fcm("QUOTA_EXCEEDED"),
        quota("device", "More than 240 messages in a minute, or 5,000 in an hour."),
    ),
    "INTERNAL": error(500, "INTERNAL", "An internal error.", of_fcm("INTERNAL")),
    "UNAVAILABLE": error(503, "UNAVAILABLE", "The service is overloaded.", of_fcm("UNAVAILABLE")),
    "502": gateway_page(502),
    "504": gateway_page(504),
    "404": HttpResponse(404, b"<html><title>404</title><p>Not found.</p></html>", HTML),
    "invalid_grant": in_json({"error": "invalid_grant", "error_description": "The signature is wrong."}, 400),
    "invalid_client": in_json({"error": "invalid_client", "error_description": "There is no such account."}, 401),
}
