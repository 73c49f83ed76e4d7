"""Words for what code names: states with their colours, what the audit records."""

from __future__ import annotations

from markupsafe import Markup

from relevo.core.i18n import gettext

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
KINDS = {
    **dict.fromkeys(("ok", "alive", "closed", "on", "confirmed", "verified", "answered"), "good"),
    **dict.fromkeys(("partial", "stopping", "silent", "late", "probing", "paused", "rests", "held"), "warn"),
    **dict.fromkeys(("retryable", "unconfirmed", "unknown", "expired", "throttled", "unclear"), "warn"),
    **dict.fromkeys(("open", "failed", "abandoned", "lost", "unavailable", "rejected", "invalid"), "bad"),
    **dict.fromkeys(("unauthorised", "not_sent"), "bad"),
}
"""The colour of a state."""
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
