"""The tables of the guide that are made of push services' facts; generate_docs.py writes them into their pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from relevo.core.known_services import EXPO, LABELS, NATIVE, SERVICES
from relevo.providers.facts import Code
from relevo.providers.http2 import facts as http2
from relevo.providers.webhook import facts as webhook
from relevo.sandbox import push_service

PAGES = ("moving-in.md", "native-push.md", "sandbox.md", "states-and-errors.md")
"""The pages that have such tables among text of their own."""
_PLACE = re.compile(r"(<!-- ([\w ]+): written by make docs -->\n).*?(<!-- /written -->\n)", re.DOTALL)


def filled(page: str) -> str:
    """Return a page with the tables that it has places for."""
    return _PLACE.sub(lambda place: f"{place[1]}\n{_TABLES[place[2]]()}\n{place[3]}", page)


def _table(*rows: Iterable[str]) -> str:
    head, *others = (tuple(row) for row in rows)
    written = [head, *others]
    lines = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in written]
    return "\n".join([lines[0], f"|{'---|' * len(head)}", *lines[1:], ""])


def _tokens() -> str:
    rows = (
        (f"`{each.name}`{' (if none is said)' if each.name == EXPO else ''}", each.token.guide, each.token.beside)
        for each in SERVICES.values()
    )
    return _table(("`provider`", "`token`", "also"), *rows)


def _codes(*tables: Mapping[str, Code]) -> str:
    """Write the codes of some tables, those with the same answer and the same remedy in one row."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for code, each in (found for table in tables for found in table.items()):
        if each.does:
            rows.setdefault((each.does, each.mend), {})[f"`{code}`{each.aside}"] = None
    told = ((", ".join(codes), *meant) for meant, codes in rows.items())
    return _table(("code", "what Relevo does", "what you do"), *told)


def _native_codes() -> str:
    own = ({code: each for code, each in SERVICES[name].codes.items() if code not in http2.CODES} for name in NATIVE)
    return _codes(*own, http2.CODES)


def _webhook_codes() -> str:
    rows = ((f"`{code}`{each.aside}", each.does) for code, each in webhook.CODES.items())
    return _table(("code", "what Relevo does"), *rows)


def _limits() -> str:
    rows = (
        (
            each.label,
            f"{each.sending.rate_per_s:,}" if each.sending.rate_per_s else "no limit",
            str(each.sending.connections),
            f"each {each.part}" if each.part else "",
            f"{each.max_bytes:,}",
            f"{each.sending.least_retry_ms // 1_000} s" if each.sending.least_retry_ms else "",
        )
        for each in (SERVICES[name] for name in NATIVE)
    )
    return _table(
        (
            "push service",
            "pushes a second",
            "requests at once",
            "scope",
            "bytes of a push",
            "least pause before any retry",
        ),
        *rows,
    )


def _local_codes() -> str:
    rows = ((LABELS[each.name], ", ".join(f"`{code}`" for code in each.answers)) for each in push_service.known())
    return _table(("service", "codes"), *rows)


def _in_words(what: str) -> str:
    """Write what each local service says of itself in words."""
    return _table(("service", what), *((LABELS[each.name], getattr(each, what)) for each in push_service.known()))


_TABLES: Mapping[str, Callable[[], str]] = {
    "limits": _limits,
    "codes of local services": _local_codes,
    "checks of local services": lambda: _in_words("checks"),
    "kept by local services": lambda: _in_words("keeps"),
    "tokens": _tokens,
    "codes of Expo": lambda: _codes(SERVICES[EXPO].codes),
    "codes of native push": _native_codes,
    "codes of webhooks": _webhook_codes,
}
