"""Answers of Huawei: a code beside the status, with words, and a name for the request."""

from __future__ import annotations

import secrets

from relevo.sandbox.answers import HttpResponse, gateway_page, in_json

_TOLD = {
    "80100000": (400, "Check Parameter Partial Success."),
    "80100001": (400, "Check Parameter Error."),
    "80100003": (400, "Illegal payload."),
    "80100016": (400, "The message has sensitive words."),
    "80200001": (401, "Authentication Error."),
    "80200003": (401, "Oauth token expired."),
    "80300002": (400, "No permission to send message to these tmIDs."),
    "80300007": (400, "All the tokens are invalid."),
    "80300008": (400, "Push message size is too long."),
    "80300010": (400, "token count should within 1 and 1000."),
    "81000001": (500, "Inner Error."),
}


def answer(code: str, words: str = "") -> HttpResponse:
    """Answer with a code."""
    status, usual = _TOLD.get(code, (200, "Success"))
    return in_json({"code": code, "msg": words or usual, "requestId": secrets.token_hex(12)}, status)


def taken() -> HttpResponse:
    """Answer that a message was taken."""
    return answer("80000000")


CODES: dict[str, HttpResponse] = {
    **{code: answer(code) for code in _TOLD},
    "502": gateway_page(502),
    "503": in_json({"code": "HTTP_503", "msg": "Traffic control."}, 503),
}
