"""Answers for assistants: each is read as the dashboard's page reads it, in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from relevo.cli.common import cycle_facts
from relevo.config import Settings
from relevo.core.errors import NotFoundError, UsageError
from relevo.core.hidden_texts import hides
from relevo.database.pool import Database
from relevo.http.dashboard import explanations, guide
from relevo.operators import events, fleet, inboxes, phones, reasons, runs, search
from relevo.operators.health.problem import RUNBOOK
from relevo.operators.phones import Reason
from relevo.operators.reading import Row, as_uuid
from relevo.verbs import events as verbs
from relevo.verbs.callers import Caller

_LONGEST_PAGE = 60_000
_MOST_ROWS = 20
_OF_CYCLE = ("cycle", "source", "last_outcome", "quiet_s", "paused_reason", "off")
_OF_DUE = ("project", "lane", "due", "oldest_s")
_OF_RUN = ("id", "cycle", "source", "started_at", "seconds", "outcome", "counts", "reason", "error_message")
_OF_PHONE = (
    "installation_id", "owner", "provider", "project", "platform", "locale", "timezone", "registered_at", "updated_at",
    "receives", "quiet_until",
)  # fmt: skip
_OF_EVENT = (
    "id", "event_type", "event_key", "audience", "owners", "project", "category", "lane", "created_at", "scheduled_at",
    "deadline_at", "first_sent_at", "ended_at", "end_reason", "title", "body",
)  # fmt: skip
_OF_FOUND = ("id", "event_type", "event_key", "state", "created_at", "title", "external_id", "nombre")
_TEXTS = ("title", "body", "nombre")


@dataclass(frozen=True)
class Answers:
    """Answers questions about one installation of Relevo."""

    caller: Caller
    settings: Settings

    @property
    def database(self) -> Database:
        """The database that is asked."""
        return self.caller.database

    def status(self) -> Row:
        """Return what `relevo status` shows: each problem in a sentence, what is due, the cycles, the workers."""
        seen = fleet.status(self.database, self.settings, cycle_facts)
        return {
            "healthy": not seen.problems,
            "problems": [_problem(each) for each in seen.problems],
            "due": [_some(row, _OF_DUE) for row in seen.due],
            "failed_for_good": seen.dead_letters,
            "cycles": [_some(row, _OF_CYCLE) for row in seen.cycles],
            "workers": [_some(row, ("worker_id", "state", "role", "silent_s")) for row in seen.workers],
        }

    def latest_runs(self, cycle: str | None, outcome: str | None) -> Row:
        """Return the latest runs of cycles."""
        rows = runs.latest(self.database, cycle=cycle, outcome=outcome, limit=_MOST_ROWS)
        return {"runs": [_some(row, _OF_RUN) for row in rows]}

    def event(self, named: str) -> Row:
        """Return what became of an event: what happened when, how far it is, what went wrong, what it waits for."""
        number = self.find_event(named)
        story = events.story(self.database, number)
        if story is None:
            raise NotFoundError(f"There is no event {number} any more.", hint="It was archived.")
        nobody = story.nobody
        return {
            "event": _some(story.event, _OF_EVENT),
            "progress": story.status.progress,
            "deliveries": dict(story.counts),
            "reached_nobody_because": None if nobody is None else explanations.nobody(nobody, story.event["owners"]),
            "what_happened": [
                {"at": each.at, "what": _plain(each.what), "detail": each.detail and _plain(each.detail)}
                for each in story.moments
            ],
            "waits_because": [_plain(each) for each in story.why_it_waits],
            "what_went_wrong": [
                {
                    "deliveries": row["deliveries"],
                    "status": row["status"],
                    "code": row["last_error_code"],
                    "meaning": _plain(reasons.in_words(row["last_error_code"])),
                    "next": _plain(again),
                }
                for row, again in zip(story.errors, story.tried_again, strict=True)
            ],
        }

    def why(self, named: str, who: str) -> Row:
        """Return for each phone of an owner, or for one phone, why it got an event, or not."""
        number = self.find_event(named)
        installation = as_uuid(who)
        seen = phones.phone(self.database, installation) if installation else phones.owner(self.database, who)
        if seen is None:
            raise NotFoundError("There is no owner or phone of this name.", hint="search finds people and phones.")
        asked = [row["installation_id"] for row in seen.rows]
        return {
            "event": number,
            "phones": [_reason(each) for each in phones.explain(self.database, number, asked)],
            "note": "" if asked else "This owner has no phone.",
        }

    def person(self, owner: str) -> Row:
        """Return what the page of an owner shows: phones, the latest events with the reasons, the inbox, pushes."""
        seen = phones.owner(self.database, owner)
        if seen is None:
            raise NotFoundError("There is no owner of this name.", hint="search finds owners by the exact name.")
        ids = [row["installation_id"] for row in seen.rows]
        found = inboxes.of_owner(self.database, owner, [row["project"] for row in seen.rows])
        return {
            "phones": [self._phone(row, seen.preferences.get(row["installation_id"], [])) for row in seen.rows],
            "latest_events": [
                dict(each.event) | {"phones": [_reason(reason) for reason in each.reasons]}
                for each in phones.recent(self.database, ids)
            ],
            "inboxes": [
                {"project": each.project, "unread": each.counts.unread, "unseen": each.counts.unseen}
                | {"items": [self._item(vars(item)) for item in each.page.items]}
                for each in found
            ],
            "pushes": [self._push(row) for row in seen.history],
        }

    def preview(self, event: Mapping[str, Any]) -> Row:
        """Return whom an event would reach if it were enqueued now; nothing is enqueued.

        With hidden texts there is none: whom it would reach tells attributes and words of preferences.
        """
        if hides():
            raise UsageError("Texts are hidden here, and a preview would tell some of them.")
        told = verbs.preview(self.caller, {"key": "preview", **event}, sample=_MOST_ROWS)
        return dict(told.raw)

    def search(self, text: str) -> Row:
        """Return events, owners and phones that a number, a key, a name or an id leads to."""
        found = search.find(self.database, text)
        return {
            "events": [_some(row, _OF_FOUND) for row in [*found.events, *found.tenders]],
            "owners": found.owners,
            "phones": [_some(row, ("installation_id", "owner", "project")) for row in found.phones],
        }

    def search_guide(self, words: str) -> Row:
        """Return the sections of the guide that have all these words."""
        return {
            "sections": [
                {"page": name, "title": title, "heading": heading, "text": text[:500]}
                for name, title, heading, text in guide.search(words)
            ]
        }

    def guide_page(self, name: str) -> str:
        """Return a page of the guide, as it is written."""
        text = guide.page_text(name)
        if text is None:
            raise NotFoundError(f"There is no page {name}.", hint="search_guide finds pages.")
        return text[:_LONGEST_PAGE]

    def find_event(self, named: str) -> int:
        """Return the number of the event that is meant by its number or its key."""
        found = events.find(self.database, named)
        if len(found) == 1:
            return int(found[0]["id"])
        if not found:
            raise NotFoundError("There is no event of this number or key.", hint="Archived events are not found.")
        several = ", ".join(str(row["id"]) for row in found[:_MOST_ROWS])
        raise NotFoundError("Several events have this key.", hint=f"Name one by its number: {several}.")

    def _phone(self, row: Row, preferences: Sequence[Row]) -> Row:
        why_not = None if row["receives"] else _plain(reasons.not_allowed(row["why_not"]))
        return _some(row, _OF_PHONE) | {"does_not_receive_because": why_not, "preferences": len(preferences)}

    def _item(self, item: Row) -> Row:
        kept = ("event_id", "type", "category", *_TEXTS, "at", "seen_at", "read_at", "archived_at")
        return _some(item, kept)

    def _push(self, row: Row) -> Row:
        kept = ("id", "event_id", "event_type", "installation_id", "status", "attempt_count", "created_at", *_TEXTS)
        meaning = _plain(reasons.briefly(row["status"], row["last_error_code"]))
        return _some(row, kept) | {"meaning": meaning}


def _problem(problem: Any) -> Row:
    anchor = RUNBOOK.get(problem.code)
    return {"what": str(problem), "code": problem.code, "runbook": anchor and f"runbook#{anchor}"}


def _reason(reason: Reason) -> Row:
    told, delivery = reason.told, reason.told.raw.get("delivery") or {}
    if reason.changes is not None and explanations.came_afterwards(told, reason.changes):
        sentences = [explanations.afterwards(reason.changes)]
    else:
        sentences = [explanations.rule(told), *explanations.changed_since(told, reason.changes)]
    if delivery:
        code, status = delivery["error_code"], delivery["status"]
        sentences.append(reasons.in_words(code) or reasons.meaning(status, delivery["provider"] or ""))
    return {
        "installation_id": reason.installation_id,
        "gets_it": told.gets_it,
        "rule": told.rule,
        "verdict": explanations.verdict(told),
        "why": " ".join(_plain(each) for each in sentences),
        "delivery": delivery.get("id"),
        "status": delivery.get("status"),
    }


def _plain(text: object) -> str:
    """Return the words of a page's text without what marks them up."""
    return Markup(text).striptags() if isinstance(text, Markup) else str(text)  # noqa: S704 marked up already


def _some(row: Mapping[str, Any], names: Sequence[str]) -> Row:
    return {name: row[name] for name in names if name in row}
