"""Collect the texts of the pages into core/locale/es/LC_MESSAGES/dashboard.po, and compile it; `make texts` runs this.

New texts get an empty translation, to be written by hand; those that no page says any more are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import get_args

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_file
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from relevo import cycles, sandbox
from relevo.core import hidden_texts, push_fields
from relevo.core.i18n import DOMAIN, LOCALE
from relevo.core.known_services import CODES
from relevo.core.model import Lane, ReplyKind, Trigger
from relevo.core.statuses import EVENT_STATES, STATUSES
from relevo.http import dashboard
from relevo.http.dashboard.formats import ACTIONS, spaced
from relevo.operators import formats, health, reasons
from relevo.operators.sources import CURSORS

PLACES = [Path(str(each.__file__)).parent for each in (dashboard, sandbox)]
BELOW = [
    *sorted(Path(health.__file__).parent.glob("*.py")),
    *(Path(str(each.__file__)) for each in (reasons, formats, hidden_texts, push_fields, *cycles.modules())),
]
PO = LOCALE / "es" / "LC_MESSAGES" / f"{DOMAIN}.po"
MO = PO.with_suffix(".mo")
KEYWORDS = {**DEFAULT_KEYWORDS, "Phrase": None, "Problem": (2,), "in_numbers": (2, 3)}
WORDS = frozenset(
    {
        *EVENT_STATES,
        *("sending", "finished"),
        *STATUSES,
        *("running", "idle", "ok", "partial", "failed", "skipped", "abandoned"),
        *("alive", "late", "stopped", "lost", "silent", "stopping"),
        *("closed", "open", "probing"),
        *("unchanged", "unavailable", "rejected"),
        *("moving", "sealed", "retired", "exported", "verified", "dropped", "begun"),
        *("none", "on", "off", "paused", "rests", "confirmed"),
        *("everyone", "installations", "matching", "owners"),
        *("granted", "denied", "undetermined"),
        *get_args(Lane),
        *get_args(Trigger),
        *get_args(ReplyKind),
    }
)
"""Every word that stands for a state somewhere."""
COUNTERS = frozenset({"left_alone"}.union(*(each.counts for each in cycles.facts().values())))
"""The names of the counts of runs."""
DETAILS = frozenset(
    {
        *("answer", "cycle", "source", "reason", "event_id", "event_type", "project", "title", "phones", "id", "name"),
        *("role", "days", "path", "method", "times", "error_code", "ids", "origin", "drop", "subscription", "outcome"),
        *("installation_id", "reject_id", "worker", "paused", "version", "created", "audience", "key"),
        *("events", "event_types", "owners", "topics", "where"),
    }
)
"""With what, and to what end, as the record names it."""
NAMES = {*map(spaced, COUNTERS | ACTIONS | DETAILS), *WORDS, *CURSORS.values()}
"""Words that stand in no sentence: pages show them by what the database and the code call a thing."""


def found() -> Iterator[tuple[str, str | tuple[str, ...], list[str]]]:
    """Find every text with the file it is in and the comments on it."""
    options = {"newstyle_gettext": "false", "trimmed": "true", "silent": "false", "extensions": "jinja2.ext.do"}
    pages = [path for place in PLACES for kind in ("*.py", "templates/*.html") for path in sorted(place.glob(kind))]
    for path in [*pages, *BELOW]:
        method = "jinja2.ext:babel_extract" if path.suffix == ".html" else "python"
        for _line, text, comments, _context in extract_from_file(method, path, KEYWORDS, ["Translators:"], options):
            yield path.name if path.is_relative_to(PLACES[0]) else f"{path.parent.name}/{path.name}", text, comments
    yield from (("formats.py", name, []) for name in sorted(NAMES))
    yield from (("known_services.py", code.means, []) for code in CODES.values() if code.means)


def collect() -> Catalog:
    """Return the Spanish catalog with every text, those not translated yet included."""
    with PO.open("rb") as file:
        catalog = read_po(file, locale="es", domain=DOMAIN)
    fresh = Catalog(creation_date=catalog.creation_date)
    for name, text, comments in found():
        fresh.add(text, locations=[(name, 0)], auto_comments=comments)
    catalog.update(fresh, no_fuzzy_matching=True)
    catalog.obsolete.clear()
    return catalog


def compiled(catalog: Catalog) -> bytes:
    """Return what gettext reads."""
    write_mo(written := BytesIO(), catalog)
    return written.getvalue()


def untranslated(catalog: Catalog) -> list[str]:
    """Return the texts without a translation, or with one that is only a guess."""
    return [str(each.id) for each in catalog if each.id and (each.fuzzy or not all(_forms(each)))]


def _forms(message: Message) -> list[str]:
    return [message.string] if isinstance(message.string, str) else [*(message.string or ("",))]


def main() -> None:
    """Write both files, and name the texts that are not translated."""
    catalog = collect()
    with PO.open("wb") as file:
        write_po(file, catalog, width=120, include_lineno=False, sort_by_file=True)
    MO.write_bytes(compiled(catalog))
    for each in untranslated(catalog):
        print(f"not translated: {each}")


if __name__ == "__main__":
    main()
