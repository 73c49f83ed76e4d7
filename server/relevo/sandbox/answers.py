"""Answers of the sandbox over HTTP, and the refusals of a whole request in Expo's form."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

JSON = "application/json; charset=utf-8"
HTML = "text/html; charset=utf-8"

_PHRASES = {502: "Bad Gateway", 504: "Gateway Time-out"}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole HTTP answer."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)


class Refused(Exception):  # noqa: N818 an answer, not an error of ours
    """The request is answered with an error as a whole."""

    def __init__(self, answer: HttpResponse) -> None:
        super().__init__(answer)
        self.answer = answer


def in_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    """Answer with JSON."""
    return HttpResponse(status, json.dumps(value, separators=(",", ":")).encode(), headers=headers or {})


def refused(
    status: int, code: str, message: str, *, details: Any = None, headers: dict[str, str] | None = None
) -> Refused:
    """Refuse a whole request with one error of Expo's form."""
    error: dict[str, Any] = {"code": code, "message": message, "isTransient": status in (429, 500, 502, 503, 504)}
    if details is not None:
        error["details"] = details
    return Refused(in_json({"errors": [error]}, status, headers))


def gateway_page(status: int) -> HttpResponse:
    """Answer as a load balancer does: a page where JSON was expected."""
    title = f"{status} {_PHRASES[status]}"
    page = f"<html>\n<head><title>{title}</title></head>\n<body>\n<center><h1>{title}</h1></center>\n</body>\n</html>\n"
    return HttpResponse(status, page.encode(), HTML)


def invalid(message: str) -> Refused:
    """Refuse a request whose messages or ids are not as they should be."""
    return refused(400, "VALIDATION_ERROR", message)


def unauthorised(status: int = 403) -> Refused:
    """Refuse a request without the right access token: none at all (401), or another one (403)."""
    return refused(status, "UNAUTHORIZED", "Insufficient permissions to send push notifications to this project.")


def too_many(what: Literal["notifications", "receipts"], count: int, limit: int) -> Refused:
    """Refuse a request with more recipients than fit into one, or a question for more receipts."""
    do = "send" if what == "notifications" else "ask for"
    return refused(
        400,
        f"PUSH_TOO_MANY_{what.upper()}",
        f"You can {do} a maximum of {limit} {what} per request (received {count}); divide your requests.",
    )


def too_many_projects(tokens_by_project: dict[str, list[str]]) -> Refused:
    """Refuse a request for several projects, telling which token is whose."""
    return refused(
        400,
        "PUSH_TOO_MANY_EXPERIENCE_IDS",
        "All messages of a request must be for the same project; the details tell which token belongs to which.",
        details=tokens_by_project,
    )


def too_many_requests(rate_per_s: float, retry_after_s: int) -> Refused:
    """Refuse what goes beyond a project's rate."""
    return refused(
        429,
        "TOO_MANY_REQUESTS",
        f"Exceeded {rate_per_s:g} notifications per second, please try again.",
        headers={"retry-after": str(retry_after_s)},
    )


def too_large(limit: int) -> Refused:
    """Refuse a body that is too large, compressed or not."""
    return refused(413, "PAYLOAD_TOO_LARGE", f"The body of a request may have at most {limit} bytes, decompressed.")
