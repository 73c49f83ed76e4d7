"""The app's feed: tenders newest first, page by page, by what they are about, at a bounded cost."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg

from relevo.core import queries
from relevo.core.chile import REGIONS
from support.http_server import Served
from support.query_plans import rows_read_by_table

ADDED = """
insert into relevo.licitaciones (namespace, external_id, nombre, region, tipo, rubros, monto, moneda, sources, fingerprint, created_at)
select 'cl', 'T-' || n, 'Tender ' || n || case when n %% 100 = 7 then ' Ñandú' else '' end,
       case when n %% 2 = 0 then 'Región del Maule ' else 'Región del Ñuble' end, 'LE', array['72' || lpad(n::text, 6, '0')], n * 1000, 'CLP',
       array['test'], 'f', now() - n / 3 * interval '1 minute'
  from generate_series(%s::int, %s::int) n
"""


def names(answer: Any) -> list[str]:
    """Return the names of a page's tenders."""
    assert answer.status_code == 200, answer.text
    return [each["nombre"] for each in answer.json()["items"]]


def test_pages_and_filters(served: Served, conn: psycopg.Connection[Any]) -> None:
    """Every tender that fits comes once, newest first, whatever the page's size; a phone reads by its secret."""
    conn.execute(ADDED, [1, 30])
    app = served.client("app")
    phone = uuid4()
    secret = app.call("PUT", f"/v1/installations/{phone}", json={}).json()["secret"]
    own = {"Authorization": f"Bearer {secret}"}
    stranger = served.client()
    assert stranger.get("/v1/licitaciones").status_code == 401
    assert stranger.get("/v1/licitaciones", headers={"Authorization": f"Bearer {secret}x"}).status_code == 401
    found: list[str] = []
    cursor = None
    while True:
        page = stranger.get("/v1/licitaciones", headers=own, params={"limit": 7, "cursor": cursor})
        found += names(page)
        cursor = page.json()["next"]
        if cursor is None:
            break
    assert len(found) == len(set(found)) == 30
    assert found[:2] == ["Tender 2", "Tender 1"]
    every = {"limit": 100}
    assert len(names(app.get("/v1/licitaciones", params=every | {"region": "maule"}))) == 15
    assert names(app.get("/v1/licitaciones", params=every | {"q": "nandu"})) == ["Tender 7 Ñandú"]
    assert names(app.get("/v1/licitaciones", params=every | {"rubro": "7200000"})) == names(
        app.get("/v1/licitaciones", params=every | {"monto_max": 9000})
    )
    assert names(app.get("/v1/licitaciones", params=every | {"monto_min": 1, "moneda": "USD"})) == []
    for wrong in ({"limit": 0}, {"cursor": "x"}, {"rubro": "%"}, {"nope": 1}, {"q": "a\0"}, {"monto_min": "NaN"}):
        assert app.get("/v1/licitaciones", params=wrong).status_code == 400, wrong


def test_one_and_the_choices(served: Served, conn: psycopg.Connection[Any]) -> None:
    """One tender by its id, the regions as preferences understand them, the segments of rubros."""
    conn.execute(ADDED, [1, 1])
    ((number,),) = conn.execute("select id from relevo.licitaciones").fetchall()
    viewer = served.client("viewer")
    assert viewer.get(f"/v1/licitaciones/{number}").json()["nombre"] == "Tender 1"
    assert viewer.get("/v1/licitaciones/999999").status_code == 404
    assert [each["code"] for each in viewer.get("/v1/rubros").json()["items"]].count("72") == 1
    regions = [each["name"] for each in viewer.get("/v1/regions").json()["items"]]
    assert regions == list(REGIONS.values())
    ((keys,),) = conn.execute(
        "select count(distinct relevo.region_key(r)) from unnest(%s::text[]) r", [regions]
    ).fetchall()
    assert keys == 16
    for path in ("/v1/rubros", "/v1/regions", f"/v1/licitaciones/{number}"):
        assert served.client().get(path).status_code == 401


def test_a_page_costs_what_it_may(conn: psycopg.Connection[Any]) -> None:
    """A filter that nothing fits looks at a bounded number of tenders, and says where to go on."""
    conn.execute(ADDED, [1, 5000])
    conn.execute("analyze relevo.licitaciones")
    asked = dict.fromkeys(("tipo", "estado", "rubro", "monto_min", "monto_max", "text"))
    asked |= {
        "region": "nowhere",
        "moneda": "CLP",
        "before_at": "2299-01-01",
        "before_id": 2**62,
        "limit": 10,
        "look_at": 300,
    }
    statement = queries.load("tenders")["list_tenders"]
    assert sum(rows_read_by_table(conn, statement, asked).values()) <= 310
    [row] = conn.execute(statement, asked).fetchall()
    assert row[-1] is not None
