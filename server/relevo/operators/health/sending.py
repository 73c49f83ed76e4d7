"""Problems of sending: the queue, projects, fan-out, the runaway brake, news, and things left alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from shlex import quote

from relevo.config import Settings
from relevo.core.known_services import LABELS, NATIVE, SERVICES
from relevo.core.phrases import Phrase, release_command
from relevo.core.sending_project import SendingProject, project_in_words
from relevo.operators.formats import in_numbers, in_words, timestamp
from relevo.operators.health.problem import SLACK_S, Observed, Problem, Row
from relevo.operators.health.waiting import times

_DUE_FOR_LONG_S = 600.0
_DROPPED_LATELY = timedelta(days=1)
_FAILED_IN_A_ROW = 2  # one that fails is tried again, and nobody need know
_ASKED_LATELY = timedelta(minutes=15)
_OWN_SERVER_GRACE = timedelta(minutes=2)
"""How long a webhook, a server of the operator's own, may be away before that is a problem."""
_LONG_REST = timedelta(minutes=2)


def of_trouble(row: Row) -> Problem:
    """Name a thing that is left alone after an error; the rest goes on."""
    return Problem(
        "left_alone",
        "{what} has failed {times} since {since} (everything else continues): {why}; "
        "correct the cause; Relevo tries again at {at}",
        what=_left_alone(row["kind"], row["name"]),
        why=row["error"].removesuffix("."),
        times=times(row["failures"]),
        since=timestamp(row["first_at"]),
        at=timestamp(row["retry_at"]),
    )


def _left_alone(kind: str, name: str) -> str:
    """Name a thing that is left alone: a lane before its project, a step of a cycle behind it."""
    first, _, second = name.partition(" ")
    match kind:
        case "lane":
            return Phrase("the {lane} lane of project {project}", lane=first, project=project_in_words(second))
        case "part":
            return Phrase("the step {step} of {cycle}", step=second, cycle=first)
        case "claim":
            return Phrase("expired claim {name}", name=name)
        case "delivery":
            return Phrase("delivery {name}", name=name)
        case "receipts":
            return Phrase("fetching the receipts of project {name}", name=project_in_words(name))
        case _:
            return Phrase("sending news for subscription {name}", name=name)


def of_queue(seen: Observed, settings: Settings) -> Iterator[Problem]:
    """Name claims that wait for a reaper, and deliveries that have been due for long."""
    limit_s = 3 * settings.reaper_interval_ms / 1000 + SLACK_S
    left_alone = any(row["kind"] == "claim" for row in seen.troubles)  # then a reaper is at work, and that is told
    if seen.oldest_expired_s is not None and seen.oldest_expired_s > limit_s and not left_alone:
        yield Problem(
            "claim_expired",
            "an expired claim has been waiting for the reaper for {time}; `relevo run-cycle reaper` returns its "
            "deliveries to the queue",
            time=in_words(seen.oldest_expired_s),
        )
    held = {row["project"] for row in seen.projects if row["breaker"] != "closed"}
    if any(row["cycle"] == "dispatch" and row["paused_reason"] for row in seen.cycles):
        return
    rests = {row["project"]: row["rest_until"] for row in seen.projects if row["rest_until"]}
    for row in seen.due:
        if row["oldest_s"] > _DUE_FOR_LONG_S and row["project"] not in held:
            rest = rests.get(row["project"], seen.now)
            advice = Phrase("`relevo runs --cycle dispatch` shows what dispatch does")
            if rest > seen.now:
                advice = Phrase("the push service asked Relevo to wait until {at}", at=timestamp(rest))
            yield Problem(
                "deliveries_late",
                "{deliveries} due, the oldest for {time}; {advice}",
                deliveries=in_numbers(
                    row["due"],
                    "{lane} delivery of project {project} is",
                    "{lane} deliveries of project {project} are",
                    lane=row["lane"],
                    project=project_in_words(row["project"]),
                ),
                time=in_words(row["oldest_s"]),
                advice=advice,
            )


def of_failures(project: Row, now: datetime, settings: Settings) -> Iterator[Problem]:
    """Report a failing push service before a breaker opens by it: with little to send that takes minutes.

    A server of the operator's own that fails is told of once its breaker has been open for a while.
    """
    is_sending = now - project["asked_at"] < _ASKED_LATELY and not _is_own_server(project)
    if project["breaker"] == "closed" and project["failures"] >= _FAILED_IN_A_ROW and is_sending:
        yield Problem(
            "requests_failing",
            "the last {n} requests of project {project} to its push service failed; Relevo retries them, and after "
            "{most} in a row sends only probes; `relevo deliveries --state retryable` shows the reasons",
            n=project["failures"],
            project=project_in_words(project["project"]),
            most=settings.push_breaker_failures,
        )


def of_project(project: Row, now: datetime) -> Iterator[Problem]:
    """Name a project that sends nothing but probes, rests for long, or disables no tokens any more."""
    name, release = project["project"], f"`relevo release {quote(project['project'])}`"
    may_be_restarting = _is_own_server(project) and now - (project["breaker_since"] or now) < _OWN_SERVER_GRACE
    if project["breaker"] != "closed" and not may_be_restarting:
        yield Problem(
            "project_stopped",
            "project {project} has sent only probes since {since} ({probe}): {why}; {mend}; "
            "then {release} sends a probe at once",
            project=project_in_words(name),
            key=name,
            since=timestamp(project["breaker_since"]),
            probe=_probe(project, now),
            why=project["breaker_reason"].removesuffix("."),
            mend=_mending(name, project["breaker_reason"]),
            release=release,
        )
    if project["rest_until"] is not None and project["rest_until"] - now > _LONG_REST:
        yield Problem(
            "project_rests",
            "project {project} sends nothing until {at}, because its push service asked Relevo to wait; "
            "{release} ends the wait",
            project=project_in_words(name),
            key=name,
            at=timestamp(project["rest_until"]),
            release=release,
        )
    if project["pruning_stopped_at"] is not None:
        yield Problem(
            "tokens_unregistered",
            "the push service reports so many tokens of project {project} as unregistered that Relevo has disabled "
            "none since {since}; check the project's push credentials, then run {release}",
            project=project_in_words(name),
            key=name,
            since=timestamp(project["pruning_stopped_at"]),
            release=release,
        )


def _is_own_server(project: Row) -> bool:
    return SendingProject.parse(project["project"]).provider == "webhook"


_REFUSED = ("UNAUTHORIZED", "HTTP_401", "HTTP_403")
_APP_KEYS = ("InvalidCredentials", "InvalidProviderToken", "MismatchSenderId")
_NO_WAY = ("NoConnection", "ConnectTimeout", "ProxyRefused")


def _mending(project: str, why: str) -> str:
    """Return the fix, and its setting, for the reason that a breaker opened."""
    code = why.partition(":")[0]
    provider = SendingProject.parse(project).provider
    if provider == "webhook":
        return Phrase("check that the receiver answers, and its url and secret in WEBHOOKS_FILE")
    if provider in NATIVE:
        return _mending_native(provider, code)
    if code in _REFUSED:
        return Phrase(
            "set EXPO_ACCESS_TOKEN, or this project's token in EXPO_ACCESS_TOKENS_FILE, to one that Expo accepts"
        )
    if code in _APP_KEYS:
        return Phrase("renew the app's FCM or APNs key in its Expo project")
    if code in _NO_WAY:
        return Phrase("check this machine's network (DNS, firewall, HTTPS_PROXY) and EXPO_BASE_URL")
    return Phrase("see Expo's status page: there is nothing to set here")


def _mending_native(provider: str, code: str) -> str:
    """Return the fix for a native push service."""
    label = LABELS[provider]
    if code in _NO_WAY:
        return Phrase("check this machine's network (DNS, firewall, HTTPS_PROXY)")
    known = SERVICES[provider].codes.get(code)
    if (known is not None and known.is_outage) or code.startswith("HTTP_5"):
        return Phrase("see the status page of {provider}: there is nothing to set here", provider=label)
    return Phrase(
        "check this project's {provider} credentials in PUSH_PROJECTS_FILE; `relevo doctor` names the fault",
        provider=label,
    )


def _probe(project: Row, now: datetime) -> str:
    """Return that a probe is under way, if a request is, or else when the next one goes."""
    if project["breaker"] == "probing" and project["connections"]:
        return Phrase("a probe is being sent")
    if project["probe_at"] is not None and project["probe_at"] <= now:
        return Phrase("the next due push is a probe")
    return Phrase("next probe at {at}", at=timestamp(project["probe_at"]))


def of_fanout(seen: Observed) -> Iterator[Problem]:
    """Name events whose fan-out fails, and of the one that failed most often why."""
    if not seen.failing:
        return
    row = seen.failing[0]
    yield Problem(
        "fanout_fails",
        "the fan-out of {events} fails; event {id} ({type}) failed {times}: {error}; Relevo tries again at {at}; "
        "`relevo cancel {id}` ends the event",
        events=in_numbers(len(seen.failing), "event", "events"),
        id=row["id"],
        type=row["event_type"],
        times=times(row["failures"]),
        error=row["error"],
        at=timestamp(row["retry_at"]),
    )


def of_words(seen: Observed) -> Iterator[Problem]:
    """Report that events wait for their texts, while others are fanned out."""
    if seen.unworded:
        yield Problem(
            "texts_not_rendered",
            "fan-out of {events} waits, because no worker can render the saved texts of their type; install "
            "relevo[words] for the workers, and restart them",
            events=in_numbers(seen.unworded, "event", "events"),
        )


def of_runaway(row: Row) -> Problem:
    """Name what the runaway brake holds."""
    return Problem(
        "runaway_held",
        "the runaway brake holds {events}: {reason}; run `{remedy}` to send {them}, or add --drop to discard {them}",
        events=in_numbers(
            row["events"],
            "event of {type} from {origin}",
            "events of {type} from {origin}",
            type=row["event_type"],
            origin=row["origin"],
        ),
        reason=row["reason"],
        remedy=release_command(row["event_type"], row["origin"]),
        them=Phrase("it") if row["events"] == 1 else Phrase("them"),
    )


def of_news(row: Row, now: datetime) -> Iterator[Problem]:
    """Name a subscription that lost news of late, or whose webhook may get none."""
    if row["dropped_at"] is not None and now - row["dropped_at"] < _DROPPED_LATELY:
        yield Problem(
            "news_dropped",
            "Relevo dropped {news} of subscription {name}{paused}; make your app read its news, "
            "or raise NEWS_BACKLOG_LIMIT",
            news=in_numbers(row["dropped"], "unread news item", "unread news items"),
            name=row["name"],
            paused=Phrase(", which is paused") if row["paused_at"] is not None else "",
        )
    if row["unreachable"] and row["waiting"]:
        yield Problem(
            "webhook_unreachable",
            "the webhook {webhook} of subscription {name} is switched off; "
            "`relevo news subscribe {quoted}` with another --webhook, or register the webhook again",
            webhook=row["webhook"],
            name=row["name"],
            quoted=quote(row["name"]),
        )
    if row["webhook"] is not None:
        yield from _of_consumer(row)


def _of_consumer(row: Row) -> Iterator[Problem]:
    """Name a webhook that takes no news: its address is refused, or whoever listens there does not take them."""
    if row["refused"] is not None:
        yield Problem(
            "news_refused",
            "news for subscription {name} cannot be sent to the webhook {webhook}: {why}; "
            "then `relevo redrive --project {project}` sends the failed news again",
            name=row["name"],
            webhook=row["webhook"],
            why=row["refused"].removesuffix("."),
            project=quote(f"relevo.news::{row['webhook']}"),
        )
    limit_s = _OWN_SERVER_GRACE.total_seconds() if row["breaker_reason"] is not None else _DUE_FOR_LONG_S
    if (row["oldest_s"] or 0.0) > limit_s:
        yield Problem(
            "news_not_taken",
            "your server at the webhook {webhook} accepts no news of subscription {name}{why}; Relevo is retrying "
            "{news}, the oldest for {time}, and further news wait; pushes are not delayed: check your server",
            webhook=row["webhook"],
            name=row["name"],
            why=f": {row['breaker_reason'].removesuffix('.')}" if row["breaker_reason"] else "",
            news=in_numbers(row["on_their_way"], "news item", "news items"),
            time=in_words(row["oldest_s"] or 0.0),
        )
