"""Words for what code names: states with their colours, what runs count, what the audit records."""

from __future__ import annotations

from typing import get_args

from markupsafe import Markup

from relevo.core.i18n import gettext
from relevo.core.model import Lane, ReplyKind, Trigger

EVENT_STATES = ("waiting", "held", "fanning", "fanned", "cancelled", "completed")
DELIVERY_STATUSES = (
    "pending",
    "retryable",
    "sent",
    "ok",
    "unconfirmed",
    "invalid",
    "failed",
    "expired",
    "skipped",
    "cancelled",
    "unknown",
)
OUTCOMES = ("running", "idle", "ok", "partial", "failed", "skipped", "abandoned")
WORDS = frozenset(
    {
        *EVENT_STATES,
        *("sending", "finished"),
        *DELIVERY_STATUSES,
        *OUTCOMES,
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
"""Every word that stands for a state somewhere; `make texts` collects them."""
KINDS = {
    "ok": "good",
    "alive": "good",
    "closed": "good",
    "on": "good",
    "confirmed": "good",
    "verified": "good",
    "answered": "good",
    "partial": "warn",
    "stopping": "warn",
    "silent": "warn",
    "late": "warn",
    "probing": "warn",
    "paused": "warn",
    "rests": "warn",
    "held": "warn",
    "retryable": "warn",
    "unconfirmed": "warn",
    "unknown": "warn",
    "expired": "warn",
    "throttled": "warn",
    "unclear": "warn",
    "open": "bad",
    "failed": "bad",
    "abandoned": "bad",
    "lost": "bad",
    "unavailable": "bad",
    "rejected": "bad",
    "invalid": "bad",
    "unauthorised": "bad",
    "not_sent": "bad",
}
COUNTERS = frozenset(
    {
        *("claims_reaped", "claims_lost", "deliveries_recovered", "deliveries_ambiguous", "deliveries_dead"),
        *("deliveries_unknown", "deliveries_closed_by_late_ticket", "stale_ms", "workers_lost", "runs_abandoned"),
        *("targets_selected", "deliveries_created", "deliveries_cancelled", "deliveries_ended"),
        *("events_fanned_out", "events_held", "events_expired", "events_ended", "events_created", "events_cancelled"),
        *("licitaciones_found", "licitaciones_new", "licitaciones_changed", "rejected", "mended"),
        *("push_requests", "late_tickets", "tokens_disabled", "tokens_not_disabled", "calls_given_up"),
        *("left_alone", "answers_not_written", "events_worded", "events_unrendered"),
        *("notifications_sent", "notifications_confirmed", "notifications_failed", "notifications_retryable"),
        *("notifications_postponed", "notifications_invalidated", "notifications_expired", "notifications_skipped"),
        *("notifications_unconfirmed", "notifications_unknown", "notifications_cancelled", "notifications_silent"),
        *("receipts_processed", "receipts_missing", "news_sent", "news_dropped"),
        *("news_taken", "news_retryable", "news_postponed", "news_failed", "news_expired", "news_skipped"),
        *("news_unknown", "news_cancelled", "news_invalid"),
        *("partitions_made", "runs_pruned", "workers_pruned", "late_tickets_pruned", "incidents_pruned"),
        *("minutes_pruned", "rejects_pruned", "projects_pruned", "audit_pruned", "attempts_pruned"),
        *("dead_phones_pruned", "token_moves_pruned"),
        *("signatures_pruned", "cap_uses_pruned", "digest_contents_pruned", "digests_pruned"),
        *(
            "digests_closed",
            "events_digested",
            "batches_closed",
            "events_batched",
            "batches_pruned",
            "phones_looked_at",
        ),
        *("deliveries_capped", "deliveries_batched", "deliveries_left_to_digests"),
        *("months_retired", "months_exported", "months_verified", "months_dropped", "rows_exported", "rows_verified"),
        *("parts_uploaded", "mismatches", "archived_licitaciones", "archived_events", "archived_deliveries"),
        *("archived_requests", "months_registered"),
    }
)
"""What runs count."""
ACTIONS = frozenset(
    {
        *("pause", "resume", "run_cycle", "adopt", "set_event_type", "reset_event_type", "redrive", "repair"),
        *("release_project", "release_events", "retry_rejects", "forget", "forget_owner", "grant", "cancel_event"),
        *("log_out_owner", "complete_owner", "complete_event", "change_event", "import_phones", "save_words"),
        "set_project_locale",
        *("block_owner", "unblock_owner", "export_owner", "set_category", "choose_category", "set_quiet", "set_cap"),
        *(
            "subscribe_news",
            "pause_subscription",
            "remove_subscription",
            "send_test",
            "enqueue_event",
            "login",
            "make_token",
            "revoke_token",
        ),
        *("refused_form", "refused_session", "refused_role", "refused_login"),
    }
)
"""What the record names."""
DETAILS = frozenset(
    {
        *("answer", "cycle", "source", "reason", "event_id", "event_type", "project", "title", "phones", "id", "name"),
        *("role", "days", "path", "method", "times", "error_code", "ids", "origin", "drop", "subscription", "outcome"),
        *("installation_id", "reject_id", "worker", "paused", "version", "created", "audience", "key"),
    }
)
"""With what, and to what end, as the record names it."""


def state(word: str | None, kind: str | None = None) -> Markup:
    """Write a state as a badge, in its colour (good, warn or bad) unless another is given."""
    word = word or "none"
    return badge(gettext(word).replace("_", " "), KINDS.get(word, "") if kind is None else kind)


def badge(text: str, kind: str = "") -> Markup:
    """Write a small word in a colour: good, bad, warn or none."""
    return Markup('<span class="%s">%s</span>') % (f"badge {kind}".strip(), text)


def in_words(name: str) -> str:
    """Write a name of code as words, translated as far as they are known."""
    return gettext(spaced(name))


def spaced(name: str) -> str:
    """Write a name as the words it is made of."""
    return name.replace("_", " ")


def named(name: str) -> Markup:
    """Write a name as words, with the name itself on hover."""
    return Markup('<span title="%s">%s</span>') % (name, in_words(name))
