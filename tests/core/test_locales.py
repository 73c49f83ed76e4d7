"""PostgreSQL and the package agree on which language a phone is shown."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from relevo.core.locales import chain

LOCALES = [
    "es-CL",
    "es_MX",
    "es",
    "es-ES",
    "es-419",
    "ES-cl",
    "en",
    "en-US",
    "en-GB",
    "pt-BR",
    "zh-Hant-TW",
    "zh_Hans_CN",
    "",
    "-",
    "es-",
    "*",
    "ñ",
]


def test_the_chain_is_the_same_in_sql(conn: psycopg.Connection[Any]) -> None:
    """Whichever of them chooses a text, it is the same one."""
    for locale in LOCALES:
        assert conn.execute("select relevo.locale_chain(%s)", [locale]).fetchone() == (chain(locale),), locale


def test_the_nearest_text(conn: psycopg.Connection[Any]) -> None:
    """A reader is shown the nearest text, and none of another language."""
    texts = {"es": {"title": "es"}, "es-419": {"title": "419"}, "pt-BR": {"title": "BR"}}
    for locale, title in [("es-CL", "419"), ("es-ES", "es"), ("pt-br", "BR"), ("fr", None), ("", None), (None, None)]:
        found = conn.execute("select relevo.text_in(%s, %s) ->> 'title'", [Jsonb(texts), locale]).fetchone()
        assert found == (title,), locale
        found = conn.execute("select relevo.text_in(%s, %s, 'pt-BR') ->> 'title'", [Jsonb(texts), locale]).fetchone()
        assert found == (title or "BR",), locale
