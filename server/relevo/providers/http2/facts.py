"""Common meanings of codes of the native push services."""

from __future__ import annotations

from relevo.providers.facts import APP_GONE, OWN_PROBLEM, SLOWER, WRONG_CREDENTIALS, Code

GONE = Code(APP_GONE, "as `DeviceNotRegistered`; a phone that confirmed its token since is tried again")
OTHER_APP = Code(
    "",
    "tries again; opens the breaker of that part if [several owners](promises.md#one-phones-trouble-is-its-own) met it",
    "check that the app is built for this project, its `topic` or its VAPID key",
)
CREDENTIALS = Code(
    WRONG_CREDENTIALS,
    "the breaker of that part opens; the other parts continue",
    "renew the credentials in `PUSH_PROJECTS_FILE`",
)
THROTTLED = Code(SLOWER, "waits as the answer asks: the project, or only the phone")
TOO_LARGE = Code("The message is too long for its push service.", "`failed`", "send less")
OUTAGE = Code(
    OWN_PROBLEM, "tries again, or `unknown` at most once: the push service may have accepted the push", is_outage=True
)
_NOT_TAKEN = Code(
    "The push service closed the connection before it accepted the push; nothing was sent.",
    "sends it again: the service did not accept it, and no attempt is spent",
    is_outage=True,
)

CODES = {
    "GoAway": _NOT_TAKEN,
    "RefusedStream": _NOT_TAKEN,
    "NotBegun": Code(
        "Too little of the request's time was left to begin the push; nothing was sent.",
        "sends it again within seconds: too little of the request's time was left, and no attempt is spent",
        "raise `PUSH_REQUEST_TIMEOUT_MS` if the service is always slow",
        is_outage=True,
    ),
    "ReadTimeout": Code(is_outage=True),
    "ConnectionBroken": Code(is_outage=True),
    "BrokenAnswer": Code(is_outage=True),
}
"""Codes of the connection itself."""
