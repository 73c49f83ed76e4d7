"""Phones that register by a signature of the app's server: what it holds for, and that it is good once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import requests

import relevo
from relevo.core.errors import ConfigError
from support.http_phones import KEYS, TOKEN, Phones, sign
from support.http_server import Served

CHANGES = [
    {"owner": "eva"},
    {"project": "other"},
    {"installation_id": UUID(int=7)},
    {"now": 1_000_000_000.0},
    {"now": 4_000_000_000.0},
    {"key": "old-1", "secret": KEYS["new-2"]},
    {"key": "unknown", "secret": KEYS["new-2"]},
    {"token": TOKEN.format("b")},
    {"token": None},
    {"provider": "expo"},
]


def test_signatures_hold_for_one_thing_only(phones: Phones) -> None:
    """What was signed for another phone, owner, project, token or provider, at another time or by another key, is refused."""
    for change in CHANGES:
        phone, sent = uuid4(), {"owner": "ana", "token": TOKEN.format("a")}
        told: dict[str, Any] = {"installation_id": phone} | sent | change
        key, secret = told.pop("key", "new-2"), told.pop("secret", KEYS["new-2"])
        assert phones.put(phone, signed=relevo.sign_installation(key, secret, **told), **sent).status_code == 401, (
            change
        )
        held = sign(phone, key="old-1", **sent)
        assert phones.put(phone, signed=held, **sent).status_code == 201, change


def test_a_signature_is_good_once(
    phones: Phones, serve: Callable[..., Served], keys_file: Path, conn: psycopg.Connection[Any]
) -> None:
    """Whoever saw the header gets nothing by it: not at another replica, not after the phone was forgotten."""
    phone, sent = uuid4(), {"owner": "ana", "token": TOKEN.format("a")}
    signed = sign(phone, **sent)
    first = phones.put(phone, signed=signed, **sent)
    assert first.status_code == 201
    again = phones.put(phone, signed=signed, **sent)
    assert (again.status_code, "was used before" in again.json()["detail"]) == (401, True)
    other = Phones(serve(http_signing_keys_file=keys_file, http_rate_per_second=0))
    assert other.put(phone, signed=signed, **sent).status_code == 401
    assert phones.call("DELETE", f"/v1/installations/{phone}", first.json()["secret"]).status_code == 204
    assert phones.put(phone, signed=signed, **sent).status_code == 401
    assert conn.execute("select count(*) from relevo.device_installations").fetchone() == (0,)
    assert phones.put(phone, signed=sign(phone, **sent), **sent).status_code == 201, "signed anew, in the same second"


def test_a_signature_is_good_once_however_many_bring_it(phones: Phones) -> None:
    """Of many who send one signature at the same time one is let in."""
    phone = uuid4()
    url, headers = f"{phones.served.server.url}/v1/installations/{phone}", {"X-Relevo-Signature": sign(phone)}

    def put(_: int) -> int:
        return requests.put(url, json={}, headers=headers, timeout=60).status_code

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(put, range(8)))
    assert sorted(answers) == [201] + [401] * 7


def test_a_refused_call_uses_nothing_up(phones: Phones) -> None:
    """What was refused for another reason leaves its signature as it was."""
    phone, sent = uuid4(), {"token": TOKEN.format("a")}
    signed = sign(phone, **sent)
    assert phones.put(phone, signed=signed, **sent, locale="\0").status_code == 400
    assert phones.put(phone, signed=signed, **sent).status_code == 201


def test_the_first_form_of_signatures_is_refused_by_name(phones: Phones) -> None:
    """Whoever still signs as before 0.3 is told the form that is taken now."""
    phone = uuid4()
    refused = phones.put(phone, signed=f"v1.new-2.1793000000.1793000600.{'0' * 64}")
    assert (refused.status_code, "v2.KEY.ISSUED.EXPIRES.NONCE.HEX" in refused.text) == (401, True)


def test_what_is_signed_is_what_the_docs_say(phones: Phones) -> None:
    """In any language: nine lines joined by newlines, HMAC-SHA256 in hex."""
    phone, token, now = uuid4(), TOKEN.format("a"), int(time.time())
    hashed = hashlib.sha256(token.encode()).hexdigest()
    lines = ["v2", "default", str(phone), "user-7", "", hashed, str(now), str(now + 600), "abcdefghijklmnop"]
    digest = hmac.new(base64.b64decode(KEYS["new-2"]), "\n".join(lines).encode(), hashlib.sha256).hexdigest()
    signed = f"v2.new-2.{now}.{now + 600}.abcdefghijklmnop.{digest}"
    assert phones.put(phone, signed=signed, owner="user-7", token=token).status_code == 201


def test_a_bad_file_of_keys_is_told_at_the_start(serve: Callable[..., Served], tmp_path: Path) -> None:
    """Keys that cannot be used are refused by the setting's name, and nothing of them is repeated."""
    file = tmp_path / "keys.json"
    file.touch(mode=0o600)
    for text in ("hunter2", "[]", '{"a": {"secret": "hunter2"}}', '{"a.b": {"secret": "hunter2"}}', '{"a": "hunter2"}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match="HTTP_SIGNING_KEYS_FILE cannot be used") as refused:
            serve(http_signing_keys_file=file)
        assert "hunter2" not in str(refused.value)


def test_a_secret_does_not_mend_a_signature(phones: Phones) -> None:
    """Of two proofs both have to allow it: a signature that names no owner is refused for an owner's phone, with its secret, too."""
    sent = {"token": TOKEN.format("a")}
    phone, secret = phones.new(owner="ana", **sent)
    answer = phones.put(phone, secret, signed=sign(phone, **sent), **sent)
    assert (answer.status_code, "names none" in answer.text) == (403, True)
    assert phones.put(phone, secret, signed="v2:nonsense", **sent).status_code == 401
    assert phones.put(phone, secret, **sent).status_code == 200
