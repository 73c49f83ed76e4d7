"""The verifier of webhooks for an app's server: what Relevo signed passes, with either secret, and nothing else does."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

import relevo
from relevo.client.signatures import sign_webhook
from relevo.core.errors import InvalidInputError

OLD, NEW, OTHER = (base64.b64encode(letter * 32).decode() for letter in (b"o", b"n", b"x"))
BODY = '{"type":"token.disabled","data":{"owner":"Peña"}}'.encode()
NOW = 1_700_000_000
PAGE = Path(__file__).parents[2] / "server/docs/recipes-news.md"


def headers(*secrets: str, body: bytes = BODY, at: int = NOW) -> dict[str, str]:
    """Return the headers of a webhook signed with these, as a server may spell them."""
    signed = " ".join(sign_webhook(base64.b64decode(secret), "msg_1", str(at), body) for secret in secrets)
    return {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(at), "Webhook-Signature": signed}


@pytest.mark.parametrize("known", [(NEW,), (OLD,), (OTHER, NEW)])
def test_either_secret(known: tuple[str, ...]) -> None:
    """While two secrets are signed with, a server that knows one of them takes it, and reads what it says."""
    told = relevo.verify_webhook(BODY, headers(NEW, OLD), *(f"whsec_{each}" for each in known), now=NOW + 299)
    assert told == json.loads(BODY)


@pytest.mark.parametrize(
    ("given", "body"),
    [
        (headers(OTHER), BODY),
        (headers(NEW), BODY + b" "),
        (headers(NEW) | {"Webhook-Id": "msg_2"}, BODY),
        (headers(NEW) | {"Webhook-Timestamp": str(NOW + 1)}, BODY),
        (headers(NEW) | {"Webhook-Timestamp": "\u0661"}, BODY),
        (headers(NEW) | {"Webhook-Signature": ""}, BODY),
        (headers(NEW) | {"Webhook-Signature": "v1,é"}, BODY),
        (headers(NEW, at=NOW - 301), BODY),
        (headers(NEW, at=NOW + 301), BODY),
        (headers(NEW, body=b"[]"), b"[]"),
        ({}, BODY),
    ],
)
def test_what_is_refused(given: dict[str, str], body: bytes) -> None:
    """Another secret, body, id or time, an old one, one from the future, and what is no JSON object is refused."""
    with pytest.raises(relevo.InvalidSignatureError):
        relevo.verify_webhook(body, given, f"whsec_{NEW}", now=NOW)


@pytest.mark.parametrize("secrets", [(), ("secret",), ("whsec_c2hvcnQ=",)])
def test_a_secret_is_needed(secrets: tuple[str, ...]) -> None:
    """Without a secret, or with one of another form, nothing is taken for checked."""
    with pytest.raises(InvalidInputError):
        relevo.verify_webhook(BODY, headers(NEW), *secrets, now=NOW)


def test_nothing_else_is_loaded() -> None:
    """It needs the standard library alone."""
    code = "import sys, relevo; relevo.verify_webhook; print(*(n for n in ('psycopg', 'structlog', 'orjson') if n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_the_sample() -> None:
    """The documented sample has the shape of Standard Webhooks, and passes when it is signed."""
    [sample] = [part.split("```")[0] for part in PAGE.read_text(encoding="utf-8").split("```json news\n")[1:]]
    told = relevo.verify_webhook(sample.encode(), headers(NEW, body=sample.encode()), f"whsec_{NEW}", now=NOW)
    assert list(told) == ["type", "timestamp", "data"]
    assert {"event_key", "event_type", "installation_id", "owner", "position"} <= told["data"].keys()
