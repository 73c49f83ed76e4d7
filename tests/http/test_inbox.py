"""Inboxes over HTTP: pages, counts and marks, for the app's server and for phones, and nobody else's for any of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import relevo
from support.http_phones import TOKEN, Phones, sign
from support.http_server import Served
from support.inboxes import sent
from support.phones import add_phones


def titles(answer: Any) -> list[str]:
    """Return what a page shows."""
    assert answer.status_code == 200, answer.text
    return [item["title"] for item in answer.json()["items"]]


def test_the_app_reads_and_marks(served: Served, conn: psycopg.Connection[Any]) -> None:
    """The app's server reads any owner's inbox page by page, filtered, counts it, and marks one item or all."""
    [phone] = add_phones(conn, 1, owner="ana")
    events = [sent(conn, [phone], f"{n}", category="even" if n % 2 == 0 else None, type=f"t{n % 2}") for n in range(5)]
    app = served.client("app")
    first = app.get("/v1/inbox", params={"owner": "ana", "limit": 3})
    assert titles(first) == ["4", "3", "2"]
    rest = app.get("/v1/inbox", params={"owner": "ana", "limit": 3, "before": first.json()["next"]})
    assert (titles(rest), rest.json()["next"]) == (["1", "0"], None)
    assert first.json()["newest"] == first.json()["items"][0]["cursor"]
    assert titles(app.get("/v1/inbox", params={"owner": "ana", "category": "even"})) == ["4", "2", "0"]
    assert titles(app.get("/v1/inbox", params={"owner": "ana", "type": "t1"})) == ["3", "1"]
    assert app.get("/v1/inbox/counts?owner=ana").json() == {"unread": 5, "unseen": 5}
    for mark in ("read", "archive"):
        assert app.post(f"/v1/inbox/{events[4]}/{mark}", {"owner": "ana"}).json() == {"marked": True}
    assert app.post(f"/v1/inbox/{events[3]}/seen", {"owner": "ana"}).json() == {"marked": True}
    assert app.get("/v1/inbox/counts?owner=ana").json() == {"unread": 4, "unseen": 3}
    assert titles(app.get("/v1/inbox?owner=ana&status=archived")) == ["4"]
    for mark in ("unread", "unarchive"):
        app.post(f"/v1/inbox/{events[4]}/{mark}", {"owner": "ana"})
    assert titles(app.get("/v1/inbox?owner=ana&status=unread")) == ["4", "3", "2", "1", "0"]
    assert app.post("/v1/inbox/seen-before", {"owner": "ana"}).json() == {"marked": True}
    assert app.get("/v1/inbox/counts?owner=ana").json() == {"unread": 5, "unseen": 0}
    assert app.post("/v1/inbox/read-before", {"owner": "ana", "before": "2020-01-01T00:00:00Z"}).json()["marked"]
    assert app.get("/v1/inbox/counts?owner=ana").json()["unread"] == 5
    assert app.post("/v1/inbox/read-before", {"owner": "ana"}).json() == {"marked": True}
    assert app.get("/v1/inbox/counts?owner=ana").json() == {"unread": 0, "unseen": 0}


def test_a_phone_reads_and_marks_its_own(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """A phone names nobody: its secret leads to its owner's inbox, and without an owner to its own."""
    phone, secret = phones.new(owner="ana")
    other, others = phones.new()
    event = sent(conn, [phone], "for ana")
    sent(conn, [other], "for nobody")
    assert titles(phones.call("GET", "/v1/inbox", secret)) == ["for ana"]
    assert titles(phones.call("GET", "/v1/inbox", others)) == ["for nobody"]
    assert phones.call("POST", f"/v1/inbox/{event}/read", secret).json() == {"marked": True}
    assert phones.call("GET", "/v1/inbox/counts", secret).json() == {"unread": 0, "unseen": 0}
    assert phones.call("GET", "/v1/inbox/counts", others).json() == {"unread": 1, "unseen": 1}
    assert phones.call("POST", "/v1/inbox/read-before", others).json() == {"marked": True}
    assert phones.call("GET", "/v1/inbox/counts", others).json() == {"unread": 0, "unseen": 0}
    assert titles(phones.call("GET", "/v1/inbox?status=read", secret)) == ["for ana"]


ROUTES = [
    ("GET", "/v1/inbox"),
    ("GET", "/v1/inbox/counts"),
    ("POST", "/v1/inbox/read-before"),
    ("POST", "/v1/inbox/seen-before"),
    ("POST", "/v1/inbox/{event}/read"),
    ("POST", "/v1/inbox/{event}/unseen"),
    ("POST", "/v1/inbox/{event}/archive"),
]


class Bea:
    """Another owner with a phone, whose inbox nobody is to reach or change."""

    def __init__(self, phones: Phones, conn: psycopg.Connection[Any]) -> None:
        self.phones, self.conn = phones, conn
        self.phone, self.secret = phones.new(owner="bea")
        self.event = sent(conn, [self.phone], "for bea's eyes")
        self.before = self.rows()

    def rows(self) -> list[Any]:
        """Return all that is kept of her inbox."""
        hers = "select * from relevo.inboxes where owner = 'bea'", "select * from relevo.inbox_marks"
        return [self.conn.execute(statement).fetchall() for statement in hers]

    def is_safe(self, by: Any, signed: str | None = None, **named: Any) -> set[int]:
        """Try every route so; return the answers' codes. Nothing of hers was told, and nothing changed."""
        codes = set()
        for method, path in ROUTES:
            told = {"params": named} if method == "GET" else {"json": named}
            answer = self.phones.call(method, path.format(event=self.event), by, signed, **told)
            assert "for bea's eyes" not in answer.text
            codes.add(answer.status_code)
        assert self.rows() == self.before
        return codes


@pytest.fixture
def bea(phones: Phones, conn: psycopg.Connection[Any]) -> Bea:
    """Another owner."""
    return Bea(phones, conn)


def test_a_phone_cannot_name_another(phones: Phones, bea: Bea) -> None:
    """Whatever ids and names a phone adds to its own secret, it is refused; without them it finds no item of the other's."""
    _, secret = phones.new(owner="ana")
    for named in ({"owner": "bea"}, {"owner": "ana"}, {"installation_id": str(bea.phone)}, {"project": "default"}):
        assert bea.is_safe(secret, **named) == {403}
    answer = phones.call("POST", f"/v1/inbox/{bea.event}/read", secret)
    assert answer.status_code == 404
    assert bea.rows() == bea.before


def test_no_signature_opens_an_inbox(phones: Phones, bea: Bea) -> None:
    """A signature registers, and reads nothing: neither her own, used or fresh, nor one made for another owner."""
    phone, secret = phones.new(owner="ana")
    hers, mine = sign(bea.phone, "bea"), sign(phone, "ana")
    for signed in (hers, mine, sign(phone, "bea")):
        assert bea.is_safe(None, signed) == {401}
        assert bea.is_safe(None, signed, owner="bea") == {401}
        assert bea.is_safe(secret, signed, owner="bea") == {403}
    used = phones.put(bea.phone, signed=hers, owner="bea")
    assert used.status_code == 200
    assert bea.is_safe(None, hers, installation_id=str(bea.phone)) == {401}


def test_secrets_put_together(phones: Phones, bea: Bea) -> None:
    """The id of one phone with the secret of another, a piece of hers, or her id alone, is no proof."""
    phone, secret = phones.new(owner="ana")
    mixed = f"device_{bea.phone.hex}_{secret.rpartition(phone.hex + '_')[2]}"
    for tried in (mixed, bea.secret[:-1], bea.secret + "x", f"device_{bea.phone.hex}_", str(bea.phone), "device_"):
        assert bea.is_safe(tried) == {401}
        assert bea.is_safe(tried, owner="bea") == {401}


def test_log_out_ends_it(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """After a log-out, of the phone or of the owner everywhere, the secret that was read with is worth nothing."""
    for end in ("phone", "owner", "sql"):
        phone, secret = phones.new(owner=end)
        sent(conn, [phone], "private")
        assert titles(phones.call("GET", "/v1/inbox", secret)) == ["private"]
        match end:
            case "phone":
                phones.call("POST", f"/v1/installations/{phone}/log-out", secret)
            case "owner":
                phones.app.post("/v1/owners/log-out", {"owner": end})
            case _:
                relevo.unregister(conn, phone)
        for method, path in ROUTES:
            assert phones.call(method, path.format(event=1), secret).status_code == 401


def test_the_next_owner_of_a_phone(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """Who gets a phone next sees the own inbox, and nothing of who had it before; the former secret sees neither."""
    phone, former = phones.new(owner="ana", token=TOKEN.format("a"))
    event = sent(conn, [phone], "for ana")
    signed = sign(phone, "bea", token=TOKEN.format("a"))
    fresh = phones.put(phone, signed=signed, owner="bea", token=TOKEN.format("a")).json()["secret"]
    sent(conn, [phone], "for bea")
    assert phones.call("GET", "/v1/inbox", former).status_code == 401
    assert titles(phones.call("GET", "/v1/inbox", fresh)) == ["for bea"]
    assert phones.call("POST", f"/v1/inbox/{event}/read", fresh).status_code == 404
    replayed = phones.put(phone, signed=signed, owner="bea", token=TOKEN.format("a"))
    assert (replayed.status_code, "secret" in replayed.json()) == (401, False)


def test_a_push_token_that_moves_takes_no_inbox_along(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """A phone that takes over another's push token, rightly or not, reads what its own owner has."""
    phone, hers = phones.new(owner="bea", token=TOKEN.format("b"))
    sent(conn, [phone], "for bea")
    other = uuid4()
    stolen = phones.put(other, phones.app, owner="ana", token=TOKEN.format("b"))
    assert stolen.status_code == 403
    moved = phones.put(other, signed=sign(other, "ana", token=TOKEN.format("b")), owner="ana", token=TOKEN.format("b"))
    assert moved.status_code in (200, 201), moved.text
    assert titles(phones.call("GET", "/v1/inbox", moved.json()["secret"])) == []
    rotated = phones.put(phone, hers, token=TOKEN.format("c"))
    if rotated.status_code == 200:
        assert titles(phones.call("GET", "/v1/inbox", hers)) == ["for bea"]


def test_a_renewed_secret_replaces_the_former(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """Once a secret was renewed the former reads nothing, and a rotated push token changes nothing."""
    phone, former = phones.new(owner="ana", token=TOKEN.format("a"))
    sent(conn, [phone], "for ana")
    assert phones.put(phone, former, token=TOKEN.format("b")).status_code == 200
    assert titles(phones.call("GET", "/v1/inbox", former)) == ["for ana"]
    renewed = phones.put(phone, phones.app, renew_secret=True).json()["secret"]
    assert phones.call("GET", "/v1/inbox", former).status_code == 401
    assert titles(phones.call("GET", "/v1/inbox", renewed)) == ["for ana"]


def test_a_phone_stays_in_its_project(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """The same owner has another inbox in another project, and a phone that of its own project."""
    one, first = phones.new(owner="ana", project="one")
    two, second = phones.new(owner="ana", project="two")
    sent(conn, [one], "in one")
    sent(conn, [two], "in two")
    assert titles(phones.call("GET", "/v1/inbox", first)) == ["in one"]
    assert titles(phones.call("GET", "/v1/inbox", second)) == ["in two"]


def test_a_token_of_one_project(phones: Phones, conn: psycopg.Connection[Any]) -> None:
    """It reads and marks inboxes of its project, whatever it names; one of all projects says which."""
    one, _ = phones.new(owner="ana", project="one")
    two, _ = phones.new(owner="ana", project="two")
    alone, _ = phones.new(project="two")
    hidden = sent(conn, [two], "in two")
    sent(conn, [one], "in one")
    sent(conn, [alone], "alone in two")
    scoped = phones.served.client("app", project="one")
    assert titles(scoped.get("/v1/inbox?owner=ana")) == ["in one"]
    assert titles(scoped.get("/v1/inbox?owner=ana&project=one")) == ["in one"]
    assert scoped.get("/v1/inbox?owner=ana&project=two").status_code == 403
    assert scoped.get(f"/v1/inbox?installation_id={alone}").status_code == 404
    assert scoped.post(f"/v1/inbox/{hidden}/read", {"owner": "ana"}).status_code == 404
    operator = phones.served.client("operator", project="one")
    assert operator.post(f"/v1/inbox/{hidden}/read", {"owner": "ana", "project": "two"}).status_code == 403
    assert phones.app.get("/v1/inbox?owner=ana").status_code == 400
    assert titles(phones.app.get("/v1/inbox?owner=ana&project=two")) == ["in two"]
    assert titles(phones.app.get(f"/v1/inbox?installation_id={alone}")) == ["alone in two"]


def test_who_is_refused(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Nobody without a token or a secret, no token that only looks at the fleet, and by name what is wrong."""
    add_phones(conn, 1, owner="ana")
    for method, path in ROUTES:
        told: dict[str, Any] = {"params": {"owner": "ana"}} if method == "GET" else {"json": {"owner": "ana"}}
        assert served.client().call(method, path.format(event=1), **told).status_code == 401
        assert served.client("viewer").call(method, path.format(event=1), **told).status_code == 403
    app = served.client("app")
    for path, field in (
        ("/v1/inbox", "owner"),
        (f"/v1/inbox?owner=ana&installation_id={UUID(int=1)}", "owner"),
        ("/v1/inbox?owner=ana&status=new", "status"),
        ("/v1/inbox?owner=ana&limit=201", "limit"),
        ("/v1/inbox?owner=ana&before=x", "before"),
        ("/v1/inbox?owner=ana&wait_ms=30001", "wait_ms"),
        ("/v1/inbox?owner=ana&wait_ms=1&before=7", "wait_ms"),
        ("/v1/inbox?owner=ana&cursor=7", "cursor"),
    ):
        answer = app.get(path)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, field), answer.text
    assert app.post("/v1/inbox/1/opened", {"owner": "ana"}).status_code == 400
    assert app.post("/v1/inbox/1/read", {"owner": "ana"}).status_code == 404
    assert app.post("/v1/inbox/read-before", {"owner": "nobody"}).json() == {"marked": False}


def test_what_an_operator_marks_is_recorded(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Marks by an operator's token are in the audit, without the owner's name; what is only read is not."""
    [phone] = add_phones(conn, 1, owner="ana-by-name")
    event = sent(conn, [phone])
    operator = served.client("operator")
    assert operator.post(f"/v1/inbox/{event}/read", {"owner": "ana-by-name"}).json() == {"marked": True}
    assert operator.post("/v1/inbox/read-before", {"owner": "ana-by-name"}).json() == {"marked": True}
    for path in ("", "/counts"):
        assert operator.get(f"/v1/inbox{path}", params={"owner": "ana-by-name"}).status_code == 200
    rows = conn.execute("select to_jsonb(a)::text from relevo.audit_log a where a.action !~ 'token'").fetchall()
    assert len(rows) == 2, rows
    assert "ana-by-name" not in str(rows)


def test_operators_see_it_on_the_owner_s_page(served: Served, conn: psycopg.Connection[Any]) -> None:
    """The page of an owner shows the newest items, what was touched, and the counts, in both languages."""
    [phone] = add_phones(conn, 1, owner="ana")
    read, _ = sent(conn, [phone], "<b>First"), sent(conn, [phone], "Second")
    relevo.mark_inbox(conn, read, "read", owner="ana")
    viewer = served.client("viewer")
    for language, words in (("en", "Unread: 1, unseen: 1."), ("es", "Sin leer: 1, sin ver: 1.")):
        page = viewer.get("/dashboard/owners/ana", headers={"Accept-Language": language}).text
        assert words in page
        assert "&lt;b&gt;First" in page
