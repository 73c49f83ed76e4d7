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
_WALLS = ("tests/http/test_walls.py", "tests/http/test_scope.py")
_TESTS: dict[str, tuple[str, ...]] = {
    "actions": ("tests/dispatch/test_redrive.py", "tests/http/test_operating.py"),
    "archive": ("tests/archive/test_retiring.py", "tests/archive/test_kills.py"),
    "batches": ("tests/dispatch/test_batches.py",),
    "caps": ("tests/fanout/test_caps.py",),
    "claims": ("tests/claims",),
    "client": (*_WALLS, "tests/http/test_owners.py", "tests/inbox", "tests/door"),
    "consent": ("tests/door/test_consent.py", "tests/http/test_choices.py"),
    "digest": ("tests/digests",),
    "digests": ("tests/digests",),
    "events": ("tests/door", *_WALLS),
    "fanout": ("tests/fanout",),
    "inbox": ("tests/inbox", "tests/oracles/test_inboxes.py"),
    "inbox_access": ("tests/inbox", "tests/http/test_inbox.py"),
    "journal": ("tests/claims/test_journal.py", "tests/dispatch/test_changed_phones.py"),
    "news": ("tests/news",),
    "phones": ("tests/door", "tests/dispatch/test_moved_phones.py"),
    "previews": ("tests/targeting", *_WALLS),
    "projects": ("tests/dispatch/test_projects.py", "tests/dispatch/test_connections.py"),
    "queue": ("tests/claims", "tests/dispatch/test_moved_phones.py"),
    "quiet": ("tests/dispatch/test_quiet.py", "tests/dispatch/test_quiet_changes.py", "tests/http/test_quiet.py"),
    "rates": ("tests/dispatch/test_projects.py", "tests/dispatch/test_busy_rows.py"),
    "reactions": ("tests/inbox/test_opens.py", "tests/dispatch/test_erasure.py"),
    "receipts": ("tests/claims", "tests/dispatch/test_receipts.py"),
    "sending": ("tests/claims/test_journal.py", "tests/dispatch/test_changed_phones.py"),
    "settle": ("tests/claims", "tests/dispatch/test_lock_order.py", "tests/dispatch/test_changed_phones.py"),
    "singleton": ("tests/runtime/test_singletons.py",),
}
_ELSEWHERE = ("tests/runtime", "tests/claims", *_WALLS)


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
