"""Phones that nobody vouches for: what strangers may register, and what they take from nobody."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import requests

import relevo
from relevo.operators import doctor
from support.http_phones import TOKEN, Phones, sign
from support.http_server import Served
from support.phones import add_phones
from support.processes import eventually


def test_open_registration(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """Where it is set, strangers register once, without an owner, in that project alone, and take nothing from others."""
    served = serve(http_open_registration="public", http_rate_per_second=0)
    phones = Phones(served)
    warned = {each.kind for each in doctor.look_around(served.app.database, served.app.settings)}
    assert "registration_open" in warned
    token = TOKEN.format("a")
    taken, _ = phones.new(token=token, project="public")
    phone = uuid4()
    assert phones.put(phone, owner="ana").status_code == 403
    assert phones.put(phone, project="default").status_code == 403
    assert phones.put(phone, provider="webhook").status_code == 403
    assert phones.put(phone, token=token).status_code == 403
    [hook] = add_phones(conn, 1, project="public", for_news=True)
    assert phones.put(hook).status_code == 404
    assert phones.call("GET", f"/v1/installations/{hook}/deliveries", phones.app).status_code == 404
    made = phones.put(phone, token=TOKEN.format("b"))
    assert made.status_code == 201
    assert phones.put(phone).status_code == 401
    assert phones.put(taken).status_code == 401
    assert phones.put(phone, made.json()["secret"], owner="ana").status_code == 403
    assert phones.put(phone, made.json()["secret"], token=token).status_code == 403


def test_strangers_at_once(serve: Callable[..., Served]) -> None:
    """Of many who register one new installation at the same time one is told its secret."""
    phones = Phones(serve(http_open_registration="default", http_rate_per_second=0))
    phone = uuid4()
    url = f"{phones.served.server.url}/v1/installations/{phone}"

    def put(_: int) -> int:
        return requests.put(url, json={}, timeout=60).status_code

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(put, range(8)))
    assert sorted(answers) == [201] + [401] * 7


@pytest.mark.parametrize("taken", ["token", "installation"])
def test_a_stranger_at_once_with_a_long_list_of_the_app(
    serve: Callable[..., Served], conn: psycopg.Connection[Any], dsn: str, taken: str
) -> None:
    """What the app registers in a transaction that is still open is not a stranger's when it commits: neither token nor id."""
    served = serve(http_open_registration="default", http_rate_per_second=0)
    phone, token = uuid4(), "ExponentPushToken[wanted]"
    listed = [relevo.Installation(token=f"ExponentPushToken[{n}]", owner="ana") for n in range(30)]
    wanted = phone if taken == "installation" else uuid4()
    listed.append(relevo.Installation(token=token, owner="eva", installation_id=wanted))
    body = {"token": token} if taken == "token" else {}

    def put() -> requests.Response:
        return requests.put(f"{served.server.url}/v1/installations/{phone}", json=body, timeout=60)

    with psycopg.connect(dsn) as app, ThreadPoolExecutor(1) as threads:
        made = relevo.register_many(app, listed)[-1]
        answer = threads.submit(put)
        waits = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        eventually(lambda: conn.execute(waits).fetchall(), "the stranger waits for the app")
        app.commit()
        assert answer.result().status_code in (403, 503)  # at once, or to be tried again
    kept = "select token, owner from relevo.device_installations where installation_id = %s"
    assert conn.execute(kept, [made]).fetchone() == (token, "eva")
    assert put().status_code == (403 if taken == "token" else 401)
    assert conn.execute(kept, [made]).fetchone() == (token, "eva")


def test_strangers_do_not_use_up_a_phones_rate(serve: Callable[..., Served], keys_file: Path) -> None:
    """Behind one proxy all have one address: a phone that has proven itself is counted by itself."""
    phones = Phones(serve(http_signing_keys_file=keys_file, http_rate_per_second=1))
    phone = uuid4()
    secret = phones.put(phone, phones.app, token=TOKEN.format("rate")).json()["secret"]
    path = f"/v1/installations/{phone}/preferences"
    assert phones.call("GET", path, secret).status_code == 200

    def strangers_are_refused() -> bool:
        return phones.call("GET", path).status_code == 429

    eventually(strangers_are_refused, "strangers have used up the address's rate")
    assert phones.call("GET", path, secret).status_code == 200


def test_what_proved_nothing_is_counted_by_its_address(serve: Callable[..., Served], keys_file: Path) -> None:
    """What a phone writes that a signature or open registration lets in is no secret: it opens no rate of its own."""
    served = serve(http_signing_keys_file=keys_file, http_open_registration="default", http_rate_per_second=1_000)
    phones, callers = Phones(served), served.server.api.state.callers
    for written in ["Basic eDp5", "Bearer ", "Bearer device_made-up"]:
        for signed in (None, sign(phone := uuid4())):
            path, headers = f"/v1/installations/{phone if signed else uuid4()}", {"Authorization": written}
            headers |= {"X-Relevo-Signature": signed} if signed else {}
            assert phones.client.call("PUT", path, json={}, headers=headers).status_code == 201, written
        assert not callers._phones, written
