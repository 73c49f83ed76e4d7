"""What is wrong with the fleet, each in a sentence with a next step: pure functions of what operators read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Any, Self

from relevo.config import REJECT_ATTEMPTS, Settings
from relevo.core.phrases import Phrase
from relevo.runtime.timing import Cron

Row = Mapping[str, Any]

_DUE_FOR_LONG_S = 600.0
_RETIRED_S = 7 * 86_400.0  # what nobody ran for a week was taken out of service
_LATE_CRON = timedelta(hours=2)
_SLACK_S = 20.0
_SILENT_SOURCE_S = 3_600.0
_NO_NEWS_S = 3 * 86_400.0  # a long weekend
_USUAL = 6.0
_PAUSED_FOR_LONG_S = 86_400.0
_LOST_LATELY_S = 900.0
_TICKED_LATELY_S = 900.0
_DROPPED_LATELY = timedelta(days=1)
_FAILED_IN_A_ROW = 2  # one that fails is tried again, and nobody need know
_ASKED_LATELY = timedelta(minutes=15)
_START = Phrase("start `relevo run`, or let cron call `relevo tick`")
MOST_COUNTED = 10_000
"""Beyond this nothing is counted: more is more."""


RUNBOOK = {
    "database_copied": "this-database-looks-like-a-copy",
    "instance_differs": "relevo_instance-differs-from-that-of-the-workers",
    "worker_rests": "a-worker-rests",
    "worker_silent": "worker-has-not-been-seen",
    "worker_lost": "worker-has-not-been-seen",
    "call_hung": "something-has-hung",
    "http_not_served": "http-cannot-be-served",
    "no_worker": "no-worker-is-running",
    "no_reaper": "no-reaper-has-ever-run",
    "cycle_failed": "a-cycle-has-failed",
    "cycle_missed_slot": "a-cycle-missed-its-slot",
    "cycle_quiet": "a-cycle-has-made-no-round",
    "news_dropped": "news-dropped-unread",
    "webhook_unreachable": "a-webhook-may-get-nothing",
    "news_refused": "news-cannot-be-sent-to-a-webhook",
    "news_not_taken": "your-server-takes-no-news",
    "cycle_paused": "paused-and-something-waits",
    "claim_expired": "an-expired-claim-waits-for-a-reaper",
    "left_alone": "one-thing-is-left-alone",
    "deliveries_late": "deliveries-are-due-for-long",
    "source_problem": "a-source-tells-what-is-wrong",
    "rejects_given_up": "rejects-were-given-up",
    "source_unread": "a-source-has-not-been-read",
    "source_without_news": "a-source-has-nothing-new",
    "requests_failing": "requests-fail-in-a-row",
    "project_stopped": "a-project-sends-only-probes",
    "tokens_unregistered": "too-many-unregistered-tokens",
    "fanout_fails": "the-fan-out-of-an-event-fails",
    "runaway_held": "held-as-a-runaway",
    "month_not_archived": "a-month-is-not-archived",
}
"""Where the runbook explains each problem, by its code: a heading's anchor."""


class Problem(Phrase):
    """A sentence that says what is wrong and what to do, with a code that stays the same however it is said."""

    __slots__ = ("code",)
    code: str

    def __new__(cls, code: str, template: str, /, **parts: object) -> Self:
        """Make a problem of its code and its sentence."""
        problem = super().__new__(cls, template, **parts)
        problem.code = code
        return problem

    @property
    def place(self) -> str:
        """Return the anchor under which the runbook explains it."""
        return RUNBOOK[self.code]


_WHY = re.compile(r": (?=\{(?:why|error|reason)\})")
_WHY_APART = re.compile(r" \((\{(?:why|reason)\}[^()]*)\)")
_APART = re.compile(r"\([^()]*\)")


def in_three(template: str) -> tuple[str, str, str]:
    """Split a problem's sentence into what is wrong, why, and what to do, as far as each is there.

    It reads `what: {why}; what to do`, or `what ({why}) and more; what to do`.
    """
    plain = _APART.sub(lambda found: "_" * len(found[0]), template)
    why = _WHY.search(plain)
    end = plain.find("; ", why.end()) if why else plain.rfind("; ")
    end = len(template) if end < 0 else end
    remedy = template[end + 2 :]
    if why:
        return template[: why.start()], template[why.end() : end], remedy
    apart = _WHY_APART.search(template[:end])
    return _WHY_APART.sub("", template[:end], count=1), apart[1] if apart else "", remedy


@dataclass(frozen=True)
class Seen:
    """What health is judged by."""

    now: datetime
    workers: Sequence[Row]
    cycles: Sequence[Row]
    due: Sequence[Row]
    sources: Sequence[Row]
    projects: Sequence[Row]
    archive: Sequence[Row]
    held: Sequence[Row] = ()
    oldest_expired_s: float | None = None
    events_waiting: int = 0
    receipts_due: bool = False
    copied: str = ""
    """Why nothing may be sent from this database, if it belongs elsewhere."""
    misnamed: Mapping[str, str | None] = field(default_factory=dict)
    """RELEVO_INSTANCE here, that of a worker at work, and that worker, if all that differs is the name."""
    news: Sequence[Row] = ()
    failing: Sequence[Row] = ()
    """Events whose fan-out fails, those that failed most often first."""
    troubles: Sequence[Row] = ()
    """What is left alone after an error while the rest goes on."""


def worker_state(worker: Mapping[str, Any]) -> str:
    """Return a worker's state in a word: of one that is alive also that it rests, or that its heartbeat is late."""
    if worker["state"] != "alive":
        return str(worker["state"])
    return "rests" if worker.get("rests_because") else "late" if worker.get("is_late") else "alive"


TOLD_APART = ("sending", "sent", "finished")
"""How far an event can be that was fanned out."""


def in_words(seconds: float) -> str:
    """Write a duration so that it can be read at a glance."""
    if seconds < 10:  # noqa: PLR2004 below ten seconds the decimals tell something
        return f"{seconds:.2f} s"
    if seconds < 600:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    if seconds < 2 * 86_400:
        return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"  # noqa: PLR2004
    return Phrase("{n} days", n=round(seconds / 86_400))


MISPLACED = {
    "not_queued": (
        ("open delivery stands", "open deliveries stand"),
        "in no chunk and no claim, and will never be sent",
        "`relevo doctor --repair` queues them.",
    ),
    "queued_twice": (
        ("delivery stands", "deliveries stand"),
        "in more than one chunk or claim, and may be pushed twice",
        "`relevo doctor --repair` leaves each in one; what two claims hold is left until they end.",
    ),
    "queued_but_ended": (
        ("delivery is", "deliveries are"),
        "queued although gone or not to be sent any more, and may be pushed again",
        "`relevo doctor --repair` takes them out of the queue.",
    ),
    "not_awaited": (
        ("sent delivery stands", "sent deliveries stand"),
        "in no awaited receipts, and will never be confirmed",
        "`relevo doctor --repair` has them asked for.",
    ),
    "awaited_but_ended": (
        ("receipt is", "receipts are"),
        "awaited of deliveries that are gone or wait for none, which is harmless",
        "The receipt cycle drops them within a day, and `relevo doctor --repair` at once.",
    ),
    "no_dead_letter": (
        ("failed delivery is", "failed deliveries are"),
        "not among the dead letters, where a redrive looks",
        "`relevo doctor --repair` adds them.",
    ),
    "wrong_dead_letter": (
        ("dead letter is", "dead letters are"),
        "of deliveries that are gone or did not fail, and would stop their next failure from being written",
        "`relevo doctor --repair` removes them.",
    ),
}
"""What can be wrong with where deliveries stand: how many of what, how, and the next step."""
HARMLESS = frozenset({"awaited_but_ended"})


def say_misplaced(kind: str, count: int, examples: Sequence[int]) -> str:
    """Tell how many deliveries do not stand where they must, and name the first of them."""
    (one, many), how, _ = MISPLACED[kind]
    named = ", ".join(map(str, examples)) + (" …" if count > len(examples) else "")
    return f"{in_numbers(count, one, many)} {how}: {named}."


def in_numbers(count: int, one: str, many: str = "", **parts: object) -> str:
    """Write a count with its noun: 1 event, 3 events, 10,000 or more events."""
    number = Phrase("{n}", n=count) if count < MOST_COUNTED else Phrase("{n} or more", n=MOST_COUNTED)
    return Phrase("{n} {what}", n=number, what=Phrase.of_count(count, one, many or f"{one}s", **parts))


def find_problems(seen: Seen, settings: Settings) -> list[Problem]:
    """Return everything that is wrong, what stops most first."""
    return [
        *_of_instance(seen),
        *([Problem("no_worker", "no worker is running; {advice}", advice=_START)] if _nobody_works(seen) else ()),
        *_of_workers(seen),
        *_of_cycles(seen, settings),
        *_of_pauses(seen),
        *(_of_trouble(row) for row in seen.troubles),
        *_of_queue(seen, settings),
        *(problem for source in seen.sources for problem in _of_source(source)),
        *(problem for project in seen.projects for problem in _of_failures(project, seen.now, settings)),
        *(problem for project in seen.projects for problem in _of_project(project, seen.now)),
        *_of_fanout(seen),
        *(_of_runaway(row) for row in seen.held),
        *(problem for row in seen.news for problem in _of_news(row, seen.now)),
        *(_of_month(month) for month in seen.archive if month["last_error"] is not None),
    ]


def _left_alone(kind: str, name: str) -> str:
    """Name a thing that is left alone: a lane before its project, a step of a cycle behind it."""
    first, _, second = name.partition(" ")
    match kind:
        case "lane":
            return Phrase("the {lane} lane of project {project}", lane=first, project=second)
        case "part":
            return Phrase("the step {step} of {cycle}", step=second, cycle=first)
        case "claim":
            return Phrase("expired claim {name}", name=name)
        case "delivery":
            return Phrase("the answer of delivery {name}", name=name)
        case "receipts":
            return Phrase("the receipts of project {name}", name=name)
        case _:
            return Phrase("news for subscription {name}", name=name)


def _of_trouble(row: Row) -> Problem:
    """Tell of a thing that is left alone after an error; the rest goes on."""
    return Problem(
        "left_alone",
        "left alone after an error while the rest goes on: {what} ({why}; {n} times since {since}); "
        "mend what it names, it is tried again at {at}",
        what=_left_alone(row["kind"], row["name"]),
        why=row["error"].removesuffix("."),
        n=row["failures"],
        since=_at(row["first_at"]),
        at=_at(row["retry_at"]),
    )


def _of_month(month: Row) -> Problem:
    return Problem(
        "month_not_archived",
        "{month} is not archived: {why}; archive-export tries again in its next slot, "
        "`relevo run-cycle archive-export` at once",
        month=f"{month['entity']} {month['month']:%Y-%m}",
        why=month["last_error"].removesuffix("."),
    )


def _of_instance(seen: Seen) -> Iterator[Problem]:
    """Tell that nothing may be sent from here: of a fleet at work only the name differs, or this is a copy."""
    if seen.misnamed:
        yield Problem(
            "instance_differs",
            "RELEVO_INSTANCE is {here} here, and {home} for worker {worker}, which is at work; "
            "nothing is sent from here until it is set as there",
            here=seen.misnamed["here"] or Phrase("unset"),
            home=seen.misnamed["home"] or Phrase("unset"),
            worker=seen.misnamed["worker"],
        )
    elif seen.copied:
        yield Problem("database_copied", "{problem}", problem=seen.copied)


def _of_resting(worker: Row, seen: Seen) -> Problem:
    others = [each["worker_id"] for each in seen.workers if each["state"] == "alive" and not each.get("rests_because")]
    advice = Phrase("set RELEVO_INSTANCE where it runs as it was, or run `relevo adopt` there if it belongs there")
    if others:
        advice = Phrase("set RELEVO_INSTANCE where it runs as worker {worker} has it", worker=others[0])
    return Problem(
        "worker_rests",
        "worker {worker} rests and sends nothing, for this database looks like a copy to it: {why}; {advice}, "
        "then restart it",
        worker=worker["worker_id"],
        why=worker["rests_because"],
        advice=advice,
    )


def _of_workers(seen: Seen) -> Iterator[Problem]:
    for worker in seen.workers:
        if worker["state"] == "alive" and worker.get("rests_because"):
            yield _of_resting(worker, seen)
        if worker["state"] == "silent":
            yield Problem(
                "worker_silent",
                "worker {worker} has not been seen for {time}; "
                "if it hangs, end its process: what it held is taken back",
                worker=worker["worker_id"],
                time=in_words(worker["silent_s"]),
            )
        elif _is_missing(worker, seen):
            yield Problem(
                "worker_lost",
                "worker {worker} has not been seen for {time}, and what it held was taken back; "
                "it was killed, or does not reach the database: look at its log",
                worker=worker["worker_id"],
                time=in_words(worker["silent_s"]),
            )
        for hung in worker["hung"] if worker["state"] in ("alive", "stopping") else ():
            where = Phrase(" (project {project})", project=hung["project"]) if hung["project"] else ""
            yield Problem(
                "call_hung",
                "worker {worker}: {what}{where} has hung since {since} (calls given up: {calls}); "
                "look into its code, and restart the worker",
                worker=worker["worker_id"],
                what=hung["what"],
                where=where,
                since=_at(datetime.fromisoformat(hung["since"])),
                calls=hung["calls"],
            )
        if worker["state"] == "alive" and (problem := (worker.get("http") or {}).get("problem")):
            yield Problem("http_not_served", "worker {worker}: {problem}", worker=worker["worker_id"], problem=problem)


def _nobody_works(seen: Seen) -> bool:
    """Tell whether every worker that ran cycles has ended, and no tick has come in its place, or came lately."""
    ran = [each for each in seen.workers if each["role"] == "run" and each["cycles"]]
    if not ran or any(each["state"] not in ("stopped", "lost") for each in ran):
        return False
    quiet_s = max(min(each["silent_s"] for each in ran), _TICKED_LATELY_S)
    return not any(each["role"] == "tick" and each["silent_s"] <= quiet_s for each in seen.workers)


def _is_missing(worker: Row, seen: Seen) -> bool:
    """Tell whether a worker was lost lately and no other was started on its host since then."""
    if worker["state"] != "lost" or worker["role"] != "run" or worker["silent_s"] > _LOST_LATELY_S:
        return False
    started = [each["started_at"] for each in seen.workers if each["hostname"] == worker["hostname"]]
    return bool(max(started) <= worker["last_seen_at"])


def _of_cycles(seen: Seen, settings: Settings) -> Iterator[Problem]:
    """Name cycles that failed, or made no round for longer than the way they are run explains."""
    running = {name: worker for worker in seen.workers if worker["state"] == "alive" for name in worker["cycles"]}
    if not any(row["cycle"] == "reaper" and row["quiet_s"] is not None for row in seen.cycles):
        yield Problem("no_reaper", "no reaper has ever run; {advice}", advice=_START)
    for row in seen.cycles:
        if row["paused_reason"] or row["quiet_s"] is None or row["quiet_s"] > _RETIRED_S:
            continue
        name = _name_of(row)
        cron = _cron_of(row["cycle"], settings)
        if row["failures"] and (row["failures"] > 1 or cron is not None):
            yield Problem(
                "cycle_failed",
                "{cycle} has failed{times}: {why}; `relevo runs --cycle {name}` tells more",
                cycle=name,
                times=Phrase(" {n} times in a row", n=row["failures"]) if row["failures"] > 1 else "",
                why=(row["error_message"] or Phrase("no reason was given")).removesuffix("."),
                name=row["cycle"],
            )
        elif cron is not None:
            yield from _missed(name, row, cron, seen.now)
        elif row["quiet_s"] > (limit_s := _limit_s(row, settings)) and not _nobody_works(seen):
            worker = running.get(name)
            advice = _START
            if worker:
                advice = Phrase(
                    "worker {worker} is alive and should run it: look at its log", worker=worker["worker_id"]
                )
            yield Problem(
                "cycle_quiet",
                "{cycle} has made no round for {time} (usual: within {usual}); {advice}",
                cycle=name,
                time=in_words(row["quiet_s"]),
                usual=in_words(limit_s),
                advice=advice,
            )


def _name_of(row: Row) -> str:
    return f"{row['cycle']}:{row['source']}" if row["source"] else str(row["cycle"])


def _missed(name: str, row: Row, cron: Cron, now: datetime) -> Iterator[Problem]:
    slot = cron.next_slot(row["last_round_at"])
    if slot + _LATE_CRON < now:
        yield Problem(
            "cycle_missed_slot",
            "{cycle} missed its slot of {slot}; `relevo run-cycle {cycle}` runs it now",
            cycle=name,
            slot=f"{slot:%Y-%m-%d %H:%M}Z",
        )


def _cron_of(cycle: str, settings: Settings) -> Cron | None:
    crons = {"cleanup": settings.cleanup_cron, "archive-export": settings.archive_export_cron}
    return Cron(crons[cycle], settings.worker_timezone) if cycle in crons else None


def _limit_s(row: Row, settings: Settings) -> float:
    """Return how long a cycle may be quiet: by its interval, or by how often it really comes round."""
    interval_s = _interval_s(row["cycle"], settings) or 3_600
    return max(3 * interval_s + _SLACK_S, _USUAL * (row["round_gap_s"] or 0.0))


def _interval_s(cycle: str, settings: Settings) -> float | None:
    return {
        "reaper": settings.reaper_interval_ms / 1000,
        "ingest": settings.worker_interval_minutes * 60,
        "fanout": settings.fanout_interval_minutes * 60,
        "dispatch": settings.dispatch_interval_minutes * 60,
        "receipt": settings.receipt_interval_minutes * 60,
    }.get(cycle)


def next_round(row: Row, settings: Settings, now: datetime) -> datetime | None:
    """Say when a cycle comes round again at the latest, if nothing calls it before; None if nobody knows."""
    if (cron := _cron_of(row["cycle"], settings)) is not None:
        return cron.next_slot(now)
    interval_s = _interval_s(row["cycle"], settings)
    if interval_s is None or row["last_round_at"] is None:
        return None
    due: datetime = row["last_round_at"] + timedelta(seconds=interval_s)
    return due


def why_off(row: Row, settings: Settings) -> str:
    """Say why a cycle does nothing by its schedule although nobody paused it; nothing if it is on.

    A store of RELEVO_APP is not known here, so with one only what is configured is told.
    """
    set_up = settings.archive_bucket or settings.archive_folder or settings.relevo_app
    return Phrase("no store is set") if row["cycle"] == "archive-export" and not set_up else ""


def _of_news(row: Row, now: datetime) -> Iterator[Problem]:
    """Tell of a subscription that lost news of late, or whose webhook may get none."""
    if row["dropped_at"] is not None and now - row["dropped_at"] < _DROPPED_LATELY:
        yield Problem(
            "news_dropped",
            "{news} dropped unread for subscription {name}{paused}; see that they are read, "
            "or raise NEWS_BACKLOG_LIMIT",
            news=in_numbers(row["dropped"], "news was", "news were"),
            name=row["name"],
            paused=Phrase(", which is paused") if row["paused_at"] is not None else "",
        )
    if row["unreachable"] and row["waiting"]:
        yield Problem(
            "webhook_unreachable",
            "the webhook {webhook} of subscription {name} is registered so that it may get nothing; "
            "`relevo news subscribe {quoted}` with another --webhook, or register it anew",
            webhook=row["webhook"],
            name=row["name"],
            quoted=quote(row["name"]),
        )
    if row["webhook"] is not None:
        yield from _of_consumer(row)


def _of_consumer(row: Row) -> Iterator[Problem]:
    """Tell of a webhook that takes no news: its address is refused, or whoever listens there does not take them."""
    if row["refused"] is not None:
        yield Problem(
            "news_refused",
            "news for subscription {name} cannot be sent to the webhook {webhook}: {why}; "
            "then `relevo redrive --project {project}` sends again what failed by it",
            name=row["name"],
            webhook=row["webhook"],
            why=row["refused"].removesuffix("."),
            project=quote(f"relevo.news::{row['webhook']}"),
        )
    if row["breaker_reason"] is not None or (row["oldest_s"] or 0.0) > _DUE_FOR_LONG_S:
        yield Problem(
            "news_not_taken",
            "your server behind the webhook {webhook} takes no news of subscription {name}{why}; {news} on their way, "
            "the oldest for {time}, and more wait behind them; no push is held up by it: look at your server",
            webhook=row["webhook"],
            name=row["name"],
            why=f": {row['breaker_reason'].removesuffix('.')}" if row["breaker_reason"] else "",
            news=in_numbers(row["on_their_way"], "news is", "news are"),
            time=in_words(row["oldest_s"] or 0.0),
        )


def _of_pauses(seen: Seen) -> Iterator[Problem]:
    """Name the pause switches for which something waits: one for a whole cycle once, not for each source again."""
    due, events = sum(row["due"] for row in seen.due), seen.events_waiting
    waiting = {
        "dispatch": in_numbers(due, "delivery is due", "deliveries are due") if due else "",
        "fanout": in_numbers(events, "event waits", "events wait") if events else "",
        "receipt": Phrase("receipts wait to be asked for") if seen.receipts_due else "",
        "reaper": Phrase("nobody takes back what lost workers held"),
    }
    paused = {
        (row["cycle"], row["paused_source"]): {**row, "source": row["paused_source"]}
        for row in seen.cycles
        if row["paused_reason"]
    }
    for row in paused.values():
        name = _name_of(row)
        paused_s = (seen.now - row["paused_at"]).total_seconds()
        what = waiting.get(row["cycle"], Phrase("nothing of it is done") if paused_s > _PAUSED_FOR_LONG_S else "")
        if what:
            yield Problem(
                "cycle_paused",
                "{cycle} has been paused for {time} ({reason}), and {what}; `relevo resume {cycle}` switches it on",
                cycle=name,
                time=in_words(paused_s),
                reason=row["paused_reason"].removesuffix("."),
                what=what,
            )


def _of_queue(seen: Seen, settings: Settings) -> Iterator[Problem]:
    limit_s = 3 * settings.reaper_interval_ms / 1000 + _SLACK_S
    left_alone = any(row["kind"] == "claim" for row in seen.troubles)  # then a reaper is at work, and that is told
    if seen.oldest_expired_s is not None and seen.oldest_expired_s > limit_s and not left_alone:
        yield Problem(
            "claim_expired",
            "an expired claim has been waiting for a reaper for {time}; `relevo run-cycle reaper` takes it back",
            time=in_words(seen.oldest_expired_s),
        )
    held = {row["project"] for row in seen.projects if row["breaker"] != "closed"}
    if any(row["cycle"] == "dispatch" and row["paused_reason"] for row in seen.cycles):
        return
    rests = {row["project"]: row["rest_until"] for row in seen.projects if row["rest_until"]}
    for row in seen.due:
        if row["oldest_s"] > _DUE_FOR_LONG_S and row["project"] not in held:
            rest = rests.get(row["project"], seen.now)
            advice = Phrase("`relevo runs --cycle dispatch` tells what dispatch does")
            if rest > seen.now:
                advice = Phrase("the push service asked for a rest until {at}, then they are sent", at=_at(rest))
            yield Problem(
                "deliveries_late",
                "{deliveries} due, the oldest for {time}; {advice}",
                deliveries=in_numbers(
                    row["due"],
                    "{lane} delivery of project {project} is",
                    "{lane} deliveries of project {project} are",
                    lane=row["lane"],
                    project=row["project"],
                ),
                time=in_words(row["oldest_s"]),
                advice=advice,
            )


def _of_source(source: Row) -> Iterator[Problem]:
    name = source["source"]
    for problem in source["problems"]:
        yield Problem("source_problem", "source {source}: {problem}", source=name, problem=problem)
    if source["given_up"]:
        yield Problem(
            "rejects_given_up",
            "source {source}: {rejects} tried {n} times and given up; `relevo rejects --source {source}` "
            "shows what and why, with --retry it is tried again",
            source=name,
            rejects=in_numbers(source["given_up"], "reject was", "rejects were"),
            n=REJECT_ATTEMPTS,
        )
    since_ok_s, since_news_s = source["since_ok_s"], source["since_news_s"]
    if source["last_outcome"] in ("unavailable", "rejected") and (since_ok_s is None or since_ok_s > _SILENT_SOURCE_S):
        yield Problem(
            "source_unread",
            "source {source} has not been read {since}: {why}; `relevo runs --cycle ingest` tells more",
            source=name,
            since=Phrase("for {time}", time=in_words(since_ok_s)) if since_ok_s is not None else Phrase("yet"),
            why=(source["last_detail"] or source["last_outcome"]).removesuffix("."),
        )
    elif since_news_s is not None and since_news_s > max(_NO_NEWS_S, _USUAL * (source["news_gap_s"] or 0.0)):
        yield Problem(
            "source_without_news",
            "source {source} has had nothing new for {time}, longer than usual; "
            "look whether what it reads is still being published",
            source=name,
            time=in_words(since_news_s),
        )


def _of_failures(project: Row, now: datetime, settings: Settings) -> Iterator[Problem]:
    """Tell that a push service fails before a breaker opens by it: with little to send that takes minutes."""
    is_sending = now - project["asked_at"] < _ASKED_LATELY
    if project["breaker"] == "closed" and project["failures"] >= _FAILED_IN_A_ROW and is_sending:
        yield Problem(
            "requests_failing",
            "the last {n} requests of project {project} to its push service failed; they are tried again, and after "
            "{most} in a row it sends nothing but probes; `relevo deliveries --state retryable` tells why",
            n=project["failures"],
            project=project["project"],
            most=settings.push_breaker_failures,
        )


def _of_project(project: Row, now: datetime) -> Iterator[Problem]:
    name, release = project["project"], f"`relevo release {quote(project['project'])}`"
    if project["breaker"] != "closed":
        yield Problem(
            "project_stopped",
            "project {project} has sent nothing but probes since {since}, {probe}: {why}; {mend}; "
            "then {release} probes at once",
            project=name,
            since=_at(project["breaker_since"]),
            probe=_probe(project, now),
            why=project["breaker_reason"].removesuffix("."),
            mend=_mending(name, project["breaker_reason"]),
            release=release,
        )
    if project["pruning_stopped_at"] is not None:
        yield Problem(
            "tokens_unregistered",
            "project {project} met so many unregistered tokens that none has been disabled since {since}; "
            "check its push credentials, then {release}",
            project=name,
            since=_at(project["pruning_stopped_at"]),
            release=release,
        )


_REFUSED = ("UNAUTHORIZED", "HTTP_401", "HTTP_403")
_APP_KEYS = ("InvalidCredentials", "InvalidProviderToken", "MismatchSenderId")
_NO_WAY = ("NoConnection", "ConnectTimeout", "ProxyRefused")


def _mending(project: str, why: str) -> str:
    """Say what to mend, and by which setting, for the reason that a breaker opened."""
    code = why.partition(":")[0]
    if project.startswith("webhook::"):
        return Phrase("see that the receiver answers, and check its url and secret in WEBHOOKS_FILE")
    if code in _REFUSED:
        return Phrase(
            "set EXPO_ACCESS_TOKEN, or this project's token in EXPO_ACCESS_TOKENS_FILE, to one that Expo takes"
        )
    if code in _APP_KEYS:
        return Phrase("renew the app's FCM or APNs key in its Expo project")
    if code in _NO_WAY:
        return Phrase("check this machine's way out (DNS, firewall, HTTPS_PROXY) and EXPO_BASE_URL")
    return Phrase("see Expo's status page: there is nothing to set here")


def _probe(project: Row, now: datetime) -> str:
    """Say that a probe is under way, if a request is, or else when the next one goes."""
    if project["breaker"] == "probing" and project["connections"]:
        return Phrase("one is on its way")
    if project["probe_at"] is not None and project["probe_at"] <= now:
        return Phrase("the next push that is due is one")
    return Phrase("the next at {at}", at=_at(project["probe_at"]))


def _of_fanout(seen: Seen) -> Iterator[Problem]:
    """Tell of events whose fan-out fails, and of the one that failed most often why."""
    if not seen.failing:
        return
    row = seen.failing[0]
    yield Problem(
        "fanout_fails",
        "the fan-out of {events} fails, of event {id} ({type}) {times}: {error}; it is tried again at {at}, and "
        "`relevo cancel {id}` ends it",
        events=in_numbers(len(seen.failing), "event", "events"),
        id=row["id"],
        type=row["event_type"],
        times=_times(row["failures"]),
        error=row["error"],
        at=_at(row["retry_at"]),
    )


def _times(count: int) -> str:
    return Phrase("once") if count == 1 else Phrase("{n} times", n=count)


def _of_runaway(row: Row) -> Problem:
    return Problem(
        "runaway_held",
        "{events} held as a runaway: {reason}; `{remedy}` sends {them}, and with --drop ends {them}",
        events=in_numbers(
            row["events"],
            "event of {type} from {origin} is",
            "events of {type} from {origin} are",
            type=row["event_type"],
            origin=row["origin"],
        ),
        reason=row["reason"],
        remedy=_remedy(row["event_type"], row["origin"]),
        them=Phrase("it") if row["events"] == 1 else Phrase("them"),
    )


def why_it_waits(
    event: Row, waits: Sequence[Row], paused: Mapping[str, str], now: datetime, failing: Sequence[Row] = ()
) -> list[str]:
    """Say why what is open of an event waits, and until when; `failing` tells of its fan-out if that fails."""
    if event["state"] == "held":
        return [_runaway(event)]
    if event["state"] in ("waiting", "fanning"):
        return [_why_not_fanned_out(event, paused, now, failing)]
    whys = [_runaway(event) if row["repeats_held"] else _why(row, paused, now) for row in waits]
    return [
        Phrase("{n} {lane} of {project}: {why}", n=row["deliveries"], lane=row["lane"], project=row["project"], why=why)
        for row, why in zip(waits, whys, strict=True)
    ]


def _why_not_fanned_out(event: Row, paused: Mapping[str, str], now: datetime, failing: Sequence[Row]) -> str:
    scheduled = datetime.fromisoformat(event["scheduled_at"]) if event.get("scheduled_at") else None
    if scheduled is not None and scheduled > now:
        return Phrase("scheduled for {at}", at=_at(scheduled))
    if "fanout" in paused:
        return Phrase("fanout is paused ({reason}); `relevo resume fanout` switches it on", reason=paused["fanout"])
    for row in failing:
        return Phrase(
            "its fan-out failed {times}: {error}; it is tried again at {at}",
            times=_times(row["failures"]),
            error=row["error"],
            at=_at(row["retry_at"]),
        )
    return Phrase("it waits for fan-out")


def stopped(waits: Sequence[Row]) -> list[str]:
    """Name the projects for which something of an event waits because their breaker is open."""
    return list(dict.fromkeys(row["project"] for row in waits if row["breaker"] not in (None, "closed")))


def tried_again(due: datetime | None, now: datetime, held: Sequence[str]) -> str:
    """Say when what failed is tried again, as the end of a sentence: at a time, or once its project may send."""
    if due is None:
        return ""
    if due > now:
        return f", tried again at {due.astimezone(UTC):%H:%M:%S}"
    return f", tried again when project {', '.join(held)} sends again" if held else ", due to be tried again"


def _remedy(event_type: str, origin: str | None = None) -> str:
    from relevo.delivery import runaway  # noqa: PLC0415 where nothing is held, it is not needed

    return runaway.remedy(event_type, origin)


def _runaway(event: Row) -> str:
    remedy = _remedy(event["type"])
    return Phrase("held by the runaway brake; `{remedy}` sends what it holds of this type", remedy=remedy)


def _why(row: Row, paused: Mapping[str, str], now: datetime) -> str:
    if "dispatch" in paused:
        return Phrase(
            "dispatch is paused ({reason}); `relevo resume dispatch` switches it on", reason=paused["dispatch"]
        )
    if row["breaker"] not in (None, "closed"):
        if row["probe_at"] is not None and row["probe_at"] <= now:
            return Phrase("the breaker is open ({reason}), the next push is a probe", reason=row["breaker_reason"])
        return Phrase(
            "the breaker is open ({reason}), the next probe comes at {at}",
            reason=row["breaker_reason"],
            at=_at(row["probe_at"]),
        )
    if row["rest_until"] is not None and row["rest_until"] > now:
        return Phrase("the push service asked for a rest until {at}", at=_at(row["rest_until"]))
    if row["next_attempt_at"] is not None and row["next_attempt_at"] > now:
        return Phrase("tried again from {at} on", at=_at(row["next_attempt_at"]))
    return Phrase("being sent") if row["claimed"] else Phrase("due, and sent as the project's rate allows")


def _at(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z" if moment else Phrase("an unknown time")
