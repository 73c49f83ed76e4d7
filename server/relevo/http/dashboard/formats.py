"""Numbers, times and durations as people write them, and words for what code names: states, actions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup, escape

from relevo.core.i18n import gettext as _
from relevo.core.i18n import language, with_signs

_CODE = re.compile(r"`([^`]{1,400})`")
_INSTANT = re.compile(r"\b(\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?)Z")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400
_SHORT_S = 10
_SHORT_ID = 8
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
        *("set_project_locale", "apply_configuration"),
        *("block_owner", "unblock_owner", "export_owner", "set_category", "choose_category", "set_quiet", "set_cap"),
        *("register_installation", "log_out_installation", "complete_installation", "report_opened"),
        *("set_preference", "remove_preference", "acknowledge_news", "set_attributes"),
        *("share_owners", "begin_shadow", "end_shadow"),
        *(
            "subscribe_news",
            "pause_subscription",
            "remove_subscription",
            "send_test",
            "enqueue_event",
            "login",
            "make_token",
            "revoke_token",
            "restore_person",
        ),
        *("refused_form", "refused_session", "refused_role", "refused_login", "refused_proof", "refused_others"),
        *("prove_session", "end_session", "end_sessions"),
        "answer_assistant",
    }
)
"""The names in the audit."""


def number(value: float | None) -> str:
    """Write a number with its thousands apart: 12,345, in Spanish 12.345; none at all as a dash."""
    if value is None:
        return "—"
    return with_signs(f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}")  # noqa: PLR2004


def percent(some: int, of_all: int) -> str:
    """Write a share: 98.5%; of nothing as a dash, and less than all never as all."""
    if not of_all:
        return "—"
    share = some / of_all * 100
    if some < of_all:
        share = min(share, 99.9)
    written = with_signs(f"{share:.0f}" if share == int(share) else f"{share:.1f}")
    return f"{written} %" if language() == "es" else f"{written}%"


def duration(seconds: float | None) -> str:
    """Write how long: 180 ms, 4.2 s, 3 min, 5 h, 2 days."""
    if seconds is None:
        return "—"
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < _MINUTE_S:
        return with_signs(f"{seconds:.1f} s") if seconds < _SHORT_S else f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.0f} h"
    return _("{n} days").format(n=f"{seconds / _DAY_S:.0f}")


def size(value: int | None) -> str:
    """Write how many bytes: 3.2 MB."""
    if value is None:
        return "—"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:  # noqa: PLR2004
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else with_signs(f"{amount:.1f} {unit}")  # noqa: PLR2004
        amount /= 1000
    return with_signs(f"{amount:.1f} TB")


def ago(moment: datetime | None, now: datetime) -> Markup:
    """Write an instant as how long ago it was, or how soon it comes; the exact one is its title."""
    if moment is None:
        return escape(_("never"))
    away = (now - moment).total_seconds()
    told = _("%(time)s ago", time=duration(away)) if away >= 0 else _("in %(time)s", time=duration(-away))
    if abs(away) < 1:
        told = _("just now") if away >= 0 else _("in a moment")
    return _time(moment, told)


def instant(moment: datetime | None) -> Markup:
    """Write an instant; a script turns it into the viewer's own time, and the exact one is its title."""
    if moment is None:
        return Markup("—")
    return _time(moment, f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC", local=True)


def _time(moment: datetime, told: str, *, local: bool = False) -> Markup:
    exact = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    marked = Markup(" data-local") if local else ""
    return Markup('<time datetime="%s" title="%s"%s>%s</time>') % (exact, exact, marked, told)


def sentence(told: Any) -> Markup:
    """Write a sentence of ours in which `commands` stand between backticks, and its instants as other instants."""
    parts = _CODE.split(str(told))
    code = Markup("<code>{}</code>").format
    return Markup("").join(code(part) if place % 2 else _with_times(part) for place, part in enumerate(parts))


def _with_times(told: str) -> Markup:
    parts = _INSTANT.split(told)
    return Markup("").join(_read(part) if place % 2 else part for place, part in enumerate(parts))


def _read(written: str) -> Markup:
    """Write an instant of a sentence; what only looks like one stays as it is."""
    try:
        return instant(datetime.fromisoformat(written).replace(tzinfo=UTC))
    except ValueError:
        return escape(f"{written}Z")


def short(value: object) -> str:
    """Write the first letters of a long id."""
    written = str(value)
    return f"{written[:_SHORT_ID]}…" if len(written) > _SHORT_ID else written


def address(path: str, **fields: object) -> str:
    """Write an address with fields in its query; those that are empty are left out."""
    given = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def owner_path(owner: str) -> str:
    """Return the address of an owner's page."""
    return f"/dashboard/owners/{quote(owner.encode('utf-8', 'replace'), safe='')}"


def cycle_name(row: Mapping[str, Any]) -> str:
    """Name a cycle, with its source if it has one."""
    return f"{row['cycle']}:{row['source']}" if row["source"] else str(row["cycle"])


def round_up(most: float) -> int:
    """Return the next round number, an even one, for the top of a chart's axis."""
    step: int = 10 ** (len(str(int(most))) - 1)
    return next(top for top in range(2 * step, 11 * step, 2 * step) if top >= most)


def state(word: str | None, kind: str | None = None) -> Markup:
    """Write a state as a badge, in its colour (good, warn or bad) unless another is given."""
    word = word or "none"
    return badge(_(word).replace("_", " "), KINDS.get(word, "") if kind is None else kind)


def badge(text: str, kind: str = "") -> Markup:
    """Write a small word in a colour: good, bad, warn or none."""
    return Markup('<span class="%s">%s</span>') % (f"badge {kind}".strip(), text)


def in_words(name: str) -> str:
    """Write a name of code as words, translated as far as they are known."""
    return _(spaced(name))


def spaced(name: str) -> str:
    """Write a name as the words it is made of."""
    return name.replace("_", " ")


def named(name: str) -> Markup:
    """Write a name as words, with the name itself on hover."""
    return Markup('<span title="%s">%s</span>') % (name, in_words(name))
