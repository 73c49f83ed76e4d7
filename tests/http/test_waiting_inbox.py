"""A long poll of an inbox: it ends when something new is there, costs one look for all, and tells nobody what is not theirs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import requests

import relevo
from relevo.http import waiting
from relevo.http.waiting import Places, Progress, Waiting
from relevo.verbs.inboxes import Numbering
from support.http_phones import Phones
from support.http_server import Served, fan_out
from support.inbox_pollers import Poll
from support.inboxes import sent
from support.phones import add_phones
from support.processes import eventually


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look as often as a test can use, not once a second, nor less often the busier the machine is."""
    monkeypatch.setattr(waiting, "LOOK_S", 0.02)
    monkeypatch.setattr(waiting, "_REST", 1)


def titles(answer: requests.Response) -> list[str]:
    """Return what a page shows."""
    assert answer.status_code == 200, answer.text
    return [item["title"] for item in answer.json()["items"]]


def test_it_ends_when_something_came(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """The app's server and each phone of the owner hear of what came; whose inbox got nothing goes on waiting."""
    phone, secret = phones.new(owner="ana")
    _, second = phones.new(owner="ana")
    _, stranger = phones.new(owner="bea")
    sent(conn, [phone], "old")
    poll = Poll(phones.served)
    newest = phones.call("GET", "/v1/inbox", secret).json()["newest"]
    calls = [poll.start(each, after=newest) for each in (secret, second)]
    calls.append(poll.start(phones.app.token, owner="ana"))
    other = poll.start(stranger, wait_ms=2_000)
    sent(conn, [phone], "new")
    assert [titles(each.result(30)) for each in calls] == [["new", "old"]] * 3
    assert titles(other.result(30)) == []


def test_what_came_before_the_wait_ends_it_at_once(served: Served, conn: psycopg.Connection[Any]) -> None:
    """What came since the page that is known is told at once, and so is the first item of an inbox that was empty."""
    [phone] = add_phones(conn, 1, owner="ana")
    app = served.client("app")
    empty = app.get("/v1/inbox?owner=ana").json()
    assert (empty["items"], empty["newest"]) == ([], "0")
    sent(conn, [phone], "first")
    started = time.monotonic()
    page = app.get("/v1/inbox", params={"owner": "ana", "after": "0", "wait_ms": 30_000})
    assert titles(page) == ["first"]
    assert time.monotonic() - started < 15
    over = app.get("/v1/inbox", params={"owner": "ana", "after": page.json()["newest"], "wait_ms": 300})
    assert titles(over) == ["first"]


def test_what_is_not_asked_for_does_not_end_it(served: Served, conn: psycopg.Connection[Any]) -> None:
    """A push that shows nothing, or of another category, leaves the caller waiting; the one it asks for ends it."""
    [phone] = add_phones(conn, 1, owner="ana")
    poll = Poll(served)
    call = poll.start(served.client("app").token, owner="ana", category="news")
    sent(conn, [phone], "")
    sent(conn, [phone], "other", category="other")
    [(place,)] = conn.execute("select max(id) from relevo.notification_deliveries").fetchall()
    eventually(lambda: all(each.behind == place for each in list(poll.waiters._waiting)), "both were seen")
    assert not call.done()
    sent(conn, [phone], "wanted", category="news")
    assert titles(call.result(30)) == ["wanted"]


def test_what_is_committed_late_ends_it(served: Served, conn: psycopg.Connection[Any], dsn: str) -> None:
    """A delivery whose number was taken before a look, and that is committed after it, ends the wait all the same."""
    [phone] = add_phones(conn, 1, owner="ana")
    sent(conn, [phone], "old")
    poll = Poll(served)
    call = poll.start(served.client("app").token, owner="ana")
    with psycopg.connect(dsn) as late:
        sent(late, [phone], "late")
        looked = threading.Event()
        ask = poll.waiters._ask
        asked: list[int] = []

        async def counted(waiting: Any) -> None:
            await ask(waiting)
            asked.append(len(waiting))
            if len(asked) > 4:
                looked.set()

        poll.waiters._ask = counted
        assert looked.wait(30), "as long as it is under way, looks go on"
        assert not call.done()
        late.commit()
    assert titles(call.result(15)) == ["late", "old"], "long before the wait is over"


def test_an_event_for_an_owner_without_phones_ends_it(served: Served, conn: psycopg.Connection[Any]) -> None:
    """What finds no phone comes to the inbox, too, and to whoever waits there."""
    call = Poll(served).start(served.client("app").token, owner="ana")
    relevo.enqueue(conn, relevo.Event("t", "1", "Missed", audience=relevo.Owners("ana")))
    fan_out(served)
    assert titles(call.result(30)) == ["Missed"]


@pytest.mark.parametrize("end", ["log-out", "next owner", "forgotten"])
def test_who_lost_the_right_meanwhile_is_told_nothing(phones: Phones, conn: psycopg.Connection[Any], end: str) -> None:
    """A phone that waits while it is logged out, given to another owner, or forgotten, is refused, not answered."""
    phone, secret = phones.new(owner="ana")
    kept, _ = phones.new(owner="ana")
    call = Poll(phones.served).start(secret)
    match end:
        case "log-out":
            phones.call("POST", f"/v1/installations/{phone}/log-out", secret)
        case "next owner":
            assert phones.put(phone, phones.app, owner="bea").status_code == 200
        case _:
            phones.call("DELETE", f"/v1/installations/{phone}", secret)
    sent(conn, [kept], "private")
    answer = call.result(60)
    assert answer.status_code == 401
    assert "private" not in answer.text


def test_a_hundred_waiters_are_one_look(serve: Callable[..., Served], conn: psycopg.Connection[Any]) -> None:
    """While a hundred wait nothing is asked of inboxes; an event for all of them wakes each with its own page."""
    served = serve(http_pool_size=2, http_rate_per_second=0, http_pool_wait_ms=60_000)
    people = [f"user-{n}" for n in range(100)]
    everybody = [add_phones(conn, 1, owner=each)[0] for each in people]
    poll, app = Poll(served), served.client("app")
    calls = [poll._threads.submit(_ask, poll, app.token, each) for each in people]
    eventually(lambda: poll.waiters.places.count == 100, "all of them wait")
    eventually(lambda: all(each.was_asked for each in list(poll.waiters._waiting)), "each was asked for once")
    assert app.get("/v1/events/999").status_code == 404
    sent(conn, everybody, "for all")
    assert [titles(each.result(60)) for each in calls] == [["for all"]] * 100
    eventually(lambda: poll.waiters.places.count == 0, "nobody waits any more")
    eventually(poll.waiters._task.done, "and nobody looks")


def _ask(poll: Poll, token: str | None, owner: str) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        headers = {"Authorization": f"Bearer {token}"}
        params: dict[str, Any] = {"owner": owner, "wait_ms": 30_000}
        return session.get(f"{poll.url}/v1/inbox", params=params, headers=headers, timeout=60)


def test_a_phone_has_few_places(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """The fourth wait of one phone is refused, while another phone still finds a place; who hangs up gives it back."""
    _, secret = phones.new(owner="ana")
    _, other = phones.new(owner="ana")
    poll = Poll(phones.served)
    calls = [poll.start(secret) for _ in range(3)]
    refused = phones.call("GET", "/v1/inbox", secret, params={"wait_ms": 30_000})
    assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (503, True)
    calls.append(poll.start(other))
    with pytest.raises(requests.Timeout):
        requests.get(
            f"{poll.url}/v1/inbox?wait_ms=30000&owner=ana",
            headers={"Authorization": f"Bearer {phones.app.token}"},
            timeout=1,
        )
    eventually(lambda: poll.waiters.places.count == 4, "who hung up is not waited for")
    poll.waiters.close()
    assert [titles(each.result(30)) for each in calls] == [[]] * 4


def test_numbers_tell_when_to_ask() -> None:
    """Inboxes are asked for until all is seen that had a number when it went on, and then no more until it goes on again."""
    progress = Progress()
    found = [
        progress.went_on(Numbering(last, oldest, following))
        for last, oldest, following in (
            (7, 10, 10),
            (7, 10, 11),
            (7, 10, 12),
            (7, 11, 13),
            (7, 13, 13),
            (9, 13, 14),
            (9, 14, 14),
            (9, 14, 14),
            (9, 14, 14),
        )
    ]
    assert found == [True, True, True, True, False, True, True, True, False]


def test_places_are_given_up_by_who_has_most() -> None:
    """Where all places are taken, the caller with most of them gives up its oldest; one that has as many finds none."""
    places = Places(4)
    waiting = [Waiting(caller) for caller in "aabbc"]
    for each in waiting:
        places.take(each)
    assert [each.gave_up for each in waiting] == [True, False, False, False, False]
    places.give_back(waiting[0])
    assert places.count == 4
    with pytest.raises(Exception, match="Too many requests of this caller"):
        places.take(Waiting("b"))
    with pytest.raises(Exception, match="Too many requests of this caller"):
        places.take(Waiting("c"), share=1)
    even, places = [Waiting(caller) for caller in "aabbc"], Places(5)
    for each in even:
        places.take(each)
    with pytest.raises(Exception, match="Too many callers wait here"):
        places.take(Waiting("c"))
    assert not any(each.gave_up for each in even), "who has two gives up none for a second of another"
    uneven, places = [Waiting(caller) for caller in "abbbcc"], Places(6)
    for each in (*uneven, Waiting("d")):
        places.take(each)
    assert [each.gave_up for each in uneven] == [False, True, False, False, False, False]
