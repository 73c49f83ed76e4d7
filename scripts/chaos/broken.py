"""Builds without one of the rules that they live by: a run has to catch each, or the rule is not watched over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from chaos.system import System

FUNCTIONS = Path(__file__).parents[2] / "sql" / "functions"
_AT_A_REQUEST = ("killed at a request", "stopped at a request, beyond the lease")


@dataclass(frozen=True)
class Build:
    """The parts taken out of each function, and the faults in which it shows."""

    what: str
    changes: tuple[tuple[str, str, str], ...]
    """File, text, and what stands there instead."""
    faults: tuple[str, ...] = _AT_A_REQUEST
    minutes: float = 0.7
    has_quiet: bool = False
    """Whether it needs digests and quiet hours."""


BUILDS = {
    "fence": Build(
        "who lost a claim writes what became of its deliveries all the same",
        (
            ("settle/settle_deliveries.sql", "(a.id in (select h.id from unnest(held_ids) as h(id))) is true", "true"),
            (
                "settle/keep_late_tickets.sql",
                "d.former_status = 'unknown' or (d.former_status = 'failed' and d.last_error_code = 'answer_not_seen')",
                "true",
            ),
        ),
    ),
    "journal": Build(
        "requests are sent without being written down first",
        (
            (
                "sending/journal_plain_wave.sql",
                "from unnest(request_ids, firsts, lasts) as q(id, first, last);",
                "from unnest(request_ids, firsts, lasts) as q(id, first, last) where false;",
            ),
        ),
    ),
    "once": Build(
        "at most once is tried again when its answer was not seen",
        (("settle/end_claim.sql", "when d.is_once then 'unknown'", "when false then 'unknown'"),),
    ),
    "queue": Build(
        "what is to be tried again is put nowhere",
        (
            (
                "settle/record_outcomes.sql",
                "from unnest(written) w where w.status in ('pending', 'retryable') having count(*) > 0;",
                "from unnest(written) w where false having count(*) > 0;",
            ),
        ),
    ),
    "lock": Build(
        "workers decide about a project without its lock",
        (
            (
                "rates/lock_project.sql",
                "perform from relevo.projects p where p.project = of_project for no key update;",
                "perform from relevo.projects p where p.project = of_project;",
            ),
        ),
        ("more due than the rate",),
    ),
    "cancel": Build(
        "a cancel is ignored by the journal",
        (
            (
                "sending/journal_plain_wave.sql",
                "e.is_there is null or e.ended_at is not null or",
                "e.is_there is null or",
            ),
            (
                "queue/event_obstacle.sql",
                "when ended_at is not null then 'event_ended'",
                "when false then 'event_ended'",
            ),
        ),
        ("Expo slow", "stopped beyond the lease"),
    ),
    "version": Build(
        "a push goes to the token that was claimed, whatever token the phone has by then",
        (
            (
                "sending/phones_unchanged.sql",
                "(i.token_version = w.token_version and relevo.may_receive(i)",
                "(relevo.may_receive(i)",
            ),
        ),
        ("Expo slow", "more due than the rate"),
    ),
    "counts": Build(
        "counts do not follow what a reaper takes back",
        (("counts/move_counts.sql", "having sum(s.n) <> 0;", "having false;"),),
    ),
    "caps": Build(
        "caps are not looked at",
        (("caps/is_under_caps.sql", "(e).lane <> 'urgent'", "false"),),
    ),
    "names": Build(
        "a forgotten owner stays named beside their events",
        (("client/forget_owner.sql", "delete from relevo.event_owners where owner = of_owner;", ""),),
    ),
    "news": Build(
        "nobody is told of what failed",
        (("news/note_dead_letters.sql", "if relevo.is_news('delivery.failed') then", "if false then"),),
        ("Expo refuses messages",),
    ),
    "restore": Build(
        "answers of claims that a restore took back are taken for those of others",
        (("settle/keep_late_tickets.sql", "if not exists (", "if false and not exists ("),),
        ("restored under running replicas",),
        minutes=2,
    ),
    "digests": Build(
        "a digest leaves what it told among what is gathered",
        (
            (
                "digests/close_digest_slice.sql",
                "delete from relevo.digest_items x using taken t where",
                "update relevo.digest_items x set inbox_id = x.inbox_id from taken t where",
            ),
        ),
        minutes=1.5,
        has_quiet=True,
    ),
    "quiet": Build(
        "quiet hours are not looked at",
        (("quiet/quiet_verdict.sql", "where until is not null and rule <> 'ignore'", "where false"),),
        minutes=1.5,
        has_quiet=True,
    ),
}


def take_out(system: System, name: str) -> None:
    """Replace functions of the run's database by ones that lack something."""
    with system.connect() as conn:
        for file, text, instead in BUILDS[name].changes:
            function = (FUNCTIONS / file).read_text()
            assert function.count(text) == 1, f"{file} does not hold once: {text}"
            conn.execute(function.replace(text, instead).encode())
