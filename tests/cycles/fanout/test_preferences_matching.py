"""A match has one meaning: the SQL function that fan-out and dispatch share says what plain Python says."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from relevo.client import verbs
from relevo.client.values import Event, Matching, Preference, TenderMatching, TenderPreference
from support import matching_oracle
from support.phones import add_phones

SET = """
insert into relevo.notification_preferences
       (installation_id, name, enabled, topics, rubro_prefix, tipo, region, monto_min, monto_max, moneda, keywords)
select %s, p.name, p.enabled, p.topics, p.rubro_prefix, p.tipo, p.region, p.monto_min, p.monto_max, p.moneda, p.keywords
  from jsonb_to_recordset(%s) as p(name text, enabled boolean, topics text[], rubro_prefix text, tipo text, region text,
                                   monto_min numeric, monto_max numeric, moneda text, keywords text[])
"""
ASK = """
select relevo.preference_matches(p, e)
  from relevo.notification_preferences p
  join relevo.notification_events e on e.event_key = p.name
 order by e.id
"""


def ask(conn: Any, pairs: list[tuple[Preference, Matching]]) -> list[bool]:
    """Let the database judge all pairs in one query, and leave nothing behind."""
    with conn.transaction(force_rollback=True):
        phone = add_phones(conn, 1)[0]
        conn.execute(SET, [phone, Jsonb([_asked(asked) | {"name": str(n)} for n, (asked, _) in enumerate(pairs)])])
        verbs.enqueue_many(
            conn,
            [
                Event("t", str(n), "t", audience=reported, topics=matching_oracle.topics_of(reported))
                for n, (_, reported) in enumerate(pairs)
            ],
        )
        return [row[0] for row in conn.execute(ASK).fetchall()]


def _asked(asked: Preference) -> dict[str, Any]:
    bounded = asked.monto_min is not None or asked.monto_max is not None
    plain = vars(asked) | {"moneda": asked.moneda or ("CLP" if bounded else None)}
    return {name: str(value) if isinstance(value, Decimal) else value for name, value in plain.items()}


def test_the_function_says_what_plain_python_says(conn) -> None:
    """Whatever is asked and told, nulls, accents, case, punctuation and combining forms included, both judge alike."""
    verdicts = {True: 0, False: 0}

    # Not shrunk: the assertion names the one pair.
    @settings(
        max_examples=30, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(st.tuples(matching_oracle.preferences(), matching_oracle.events()), min_size=30, max_size=50))
    def judge(pairs: list[tuple[Preference, Matching]]) -> None:
        expected = [matching_oracle.matches(asked, reported) for asked, reported in pairs]
        for (asked, reported), said, right in zip(pairs, ask(conn, pairs), expected, strict=True):
            assert said == right, (asked, reported)
            verdicts[right] += 1

    judge()
    assert min(verdicts.values()) > 100, f"the pairs must try both verdicts: {verdicts}"


TENDER = TenderMatching(
    rubros=("72131500", "45000000"),
    region="Región del Ñuble",
    tipo="LE",
    monto=Decimal("120000000.00"),
    moneda="CLP",
    text="Construcción de señalética, O\u00b4Higgins (2ª etapa)",
)


RULES = [
    (Preference(), True),
    (Preference(enabled=False), False),
    (TenderPreference(rubro_prefix="7213"), True),
    (TenderPreference(rubro_prefix="45"), True),
    (TenderPreference(rubro_prefix="2131"), False),
    (TenderPreference(region="ñuble"), True),
    (TenderPreference(region="REGION DEL NUBLE"), True),
    (TenderPreference(region="Biobío"), False),
    (TenderPreference(tipo=" le"), True),
    (TenderPreference(tipo="L"), False),
    (TenderPreference(monto_min=120_000_000, moneda="CLP"), True),
    (TenderPreference(monto_max=120_000_000, moneda="CLP"), True),
    (TenderPreference(monto_min=120_000_001, moneda="CLP"), False),
    (TenderPreference(monto_max=119_999_999, moneda="CLP"), False),
    (TenderPreference(monto_min=1, moneda="USD"), False),
    (TenderPreference(moneda="USD"), True),
    (Preference(keywords=("senaletica",)), True),
    (Preference(keywords=("SEN\u0303ALE\u0301TICA",)), True),
    (Preference(keywords=("o'higgins",)), True),
    (Preference(keywords=("higgins 2",)), True),
    (Preference(keywords=("construcción  DE señalética",)), True),
    (Preference(keywords=("construcción señalética",)), False),
    (Preference(keywords=("señal",)), False),
    (Preference(keywords=("aseo", "etapa")), True),
    (Preference(keywords=("...", "-")), False),
    (TenderPreference(keywords=("etapa",), rubro_prefix="99"), False),
]


def test_the_rules_one_by_one(conn) -> None:
    """Each rule of the matching, on one tender, for the reader."""
    said = ask(conn, [(asked, TENDER) for asked, _ in RULES])
    wrong = [(asked, right) for (asked, right), answer in zip(RULES, said, strict=True) if answer != right]
    assert not wrong
    assert [matching_oracle.matches(asked, TENDER) for asked, _ in RULES] == said


def test_what_is_set_never_matches_what_is_not_told(conn) -> None:
    """A set preference against a tender that does not tell that value does not match, amounts included."""
    set_ones = [
        TenderPreference(rubro_prefix="7"),
        TenderPreference(region="Ñuble"),
        TenderPreference(tipo="LE"),
        TenderPreference(monto_min=0, moneda="CLP"),
        TenderPreference(monto_max=10**15, moneda="CLP"),
        Preference(keywords=("a",)),
    ]
    untold = [Matching(), TenderMatching(monto=5), TenderMatching(moneda="CLP")]
    assert ask(conn, [(asked, reported) for asked in set_ones for reported in untold]) == [False] * 18


REGIONS = {
    "Región de Arica y Parinacota": "arica y parinacota",
    "Región de Tarapacá": "TARAPACA",
    "Región de Antofagasta": "antofagasta",
    "Región de Atacama": "Atacama",
    "Región de Coquimbo": "Coquimbo",
    "Región de Valparaíso ": "valparaiso",
    "Región Metropolitana de Santiago": "Metropolitana de Santiago",
    "Región del Libertador General Bernardo O\u00b4Higgins": "Libertador General Bernardo O'Higgins",
    "Región del Maule ": "del Maule",
    "Región del Ñuble": "Ñuble",
    "Región del Biobío": "Biobi\u0301o",
    "Región de la Araucanía ": "La Araucanía",
    "Región de Los Ríos": "Los Ríos",
    "Región de los Lagos ": "los lagos",
    "Región Aysén del General Carlos Ibáñez del Campo": "AYSEN DEL GENERAL CARLOS IBANEZ DEL CAMPO",
    "Región de Magallanes y de la Antártica": "Magallanes y de la Antartica",
}


def test_every_region_is_found_by_its_name(conn) -> None:
    """Chile's sixteen regions, as the register writes them, match what people call them, and no other."""
    for official, called in REGIONS.items():
        pairs = [(TenderPreference(region=name), TenderMatching(region=official)) for name in REGIONS.values()]
        found = [pair[0].region for pair, said in zip(pairs, ask(conn, pairs), strict=True) if said]
        assert found == [called], official
