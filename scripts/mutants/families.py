"""Mistakes that are found instead of listed: each lock, and each comparison of a project or a version, left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mutants.mistake import ROOT, Mistake

FAMILIES = ("lock", "scope", "version")
_LOCK = re.compile(r" ?\bfor (?:no key update|update|key share|share)\b(?: of \w+)?(?: skip locked)?")
_NAME = r"(?:%\(\w+\)s(?:::\w+)?|[\w.]+)"
_SCOPE = re.compile(rf" and [\w.]*project = (?!any\b){_NAME}(?![\w.(,])")
_VERSION = re.compile(rf" and [\w.]*(?:token_version|term) = {_NAME}(?![\w.(,])")
_LEFT_OUT = {"lock": _LOCK, "scope": _SCOPE, "version": _VERSION}
_RULES = {
    "lock": "whoever changes the same rows waits",
    "scope": "what is a project's own stays in it",
    "version": "what changed meanwhile is not written over",
}
_NOT_OURS = "for_0_3_0"
_WALLS = ("tests/http/test_http_projects_apart.py", "tests/http/test_http_scope.py")
_CLAIMS = ("tests/delivery/claiming", "tests/runtime/test_heartbeat.py")
_CLIENT = ("tests/client", "tests/operators/test_event_types.py", "tests/scenarios/locks")
_INBOX = ("tests/client/inboxes", "tests/client/test_opens.py")
_TESTS: dict[str, tuple[str, ...]] = {
    "actions": ("tests/operators/test_actions_redrive.py", "tests/http/dashboard/test_operator_actions.py"),
    "archive": ("tests/archive/test_retire.py", "tests/cycles/export/test_kills.py"),
    "batches": ("tests/delivery/composing/test_batches.py",),
    "caps": ("tests/cycles/fanout/test_caps.py",),
    "claims": _CLAIMS,
    "client": (*_WALLS, "tests/http/test_owners.py", *_CLIENT),
    "consent": ("tests/client/test_consent.py", "tests/http/test_choices.py"),
    "digest": ("tests/cycles/digest",),
    "digests": ("tests/cycles/digest",),
    "events": (*_CLIENT, *_WALLS),
    "fanout": ("tests/cycles/fanout", "tests/cycles/test_reaper_folding.py"),
    "inbox": (*_INBOX, "tests/scenarios/oracles/test_inboxes.py"),
    "inbox_access": (*_INBOX, "tests/http/test_inbox.py"),
    "journal": ("tests/delivery/claiming/test_journal.py", "tests/scenarios/phones/test_changed_while_claimed.py"),
    "news": ("tests/cycles/news", "tests/client/test_news.py", "tests/scenarios/news/test_webhooks.py"),
    "phones": (*_CLIENT, "tests/scenarios/phones/test_moved_phones.py"),
    "previews": (
        "tests/cycles/fanout/test_preferences_index.py",
        "tests/cycles/fanout/test_preferences_matching.py",
        *_WALLS,
    ),
    "projects": ("tests/delivery/projects/test_projects.py", "tests/delivery/projects/test_connection_leases.py"),
    "queue": (*_CLAIMS, "tests/scenarios/phones/test_moved_phones.py"),
    "quiet": (
        "tests/scenarios/quiet_hours/test_quiet_hours.py",
        "tests/scenarios/quiet_hours/test_changed_hours.py",
        "tests/http/test_quiet.py",
    ),
    "rates": ("tests/delivery/projects/test_projects.py", "tests/scenarios/one_bad_thing/test_busy_rows.py"),
    "reactions": ("tests/client/test_opens.py", "tests/scenarios/phones/test_erasure.py"),
    "receipts": (*_CLAIMS, "tests/cycles/receipt/test_receipts.py"),
    "sending": ("tests/delivery/claiming/test_journal.py", "tests/scenarios/phones/test_changed_while_claimed.py"),
    "settle": (
        *_CLAIMS,
        "tests/scenarios/locks/test_lock_order.py",
        "tests/scenarios/phones/test_changed_while_claimed.py",
    ),
    "singleton": ("tests/runtime/test_singleton.py",),
}
_ELSEWHERE = ("tests/runtime", "tests/app", "tests/database", *_CLAIMS, *_WALLS)


def find(family: str) -> dict[str, Mistake]:
    """Return each place of SQL where something of a family can be left out, under a name that says where it stands."""
    found = {}
    for path in sorted((ROOT / "sql").glob("[fq]*/**/*.sql")):
        if _NOT_OURS in path.parts:
            continue
        for number, mistake in enumerate(_of_file(path, family), start=1):
            found[f"{family}:{path.relative_to(ROOT / 'sql').with_suffix('')}:{number}"] = mistake
    return found


def _of_file(path: Path, family: str) -> Iterator[Mistake]:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    topic = path.stem if path.parent.name == "queries" else path.parent.name
    for number, line in enumerate(lines):
        code = line.partition("--")[0]
        for match in _LEFT_OUT[family].finditer(code):
            before, text = _unique(lines, number)
            instead = before + line[: match.start()] + line[match.end() :]
            rule = f"{_RULES[family]} ({match[0].strip()})"
            yield Mistake(rule, str(path.relative_to(ROOT)), text, instead, _TESTS.get(topic, _ELSEWHERE))


def _unique(lines: list[str], number: int) -> tuple[str, str]:
    """Return as many lines before one as it takes to find it once in its file, and these with it."""
    whole = "".join(lines)
    first = number
    while whole.count("".join(lines[first : number + 1])) > 1 and first > 0:
        first -= 1
    return "".join(lines[first:number]), "".join(lines[first : number + 1])
