"""What the database says of caps and digests, in the reader's language."""

from __future__ import annotations

import re

from relevo.core.i18n import N_
from relevo.core.i18n import gettext as _

NO_ROOM = "There is no room for it: "
"""As the database begins what it says of a cap."""
_CAP = re.compile(r"at most (\d+) an? (hour|day|week)(?: of category (.+?))?(?:, and (\d+) are used)?\.?")
_CAPS = {
    "hour": N_("at most %(most)s an hour"),
    "day": N_("at most %(most)s a day"),
    "week": N_("at most %(most)s a week"),
}
_DAYS = {
    "mon": N_("Monday"),
    "tue": N_("Tuesday"),
    "wed": N_("Wednesday"),
    "thu": N_("Thursday"),
    "fri": N_("Friday"),
    "sat": N_("Saturday"),
    "sun": N_("Sunday"),
}


def cap(said: str | None) -> str:
    """Say which cap there was no room under; what is no such sentence stays as it is."""
    told = (said or "").removeprefix(NO_ROOM)
    found = _CAP.fullmatch(told)
    if found is None:
        return told
    most, per, category, used = found.groups()
    words = _(_CAPS[per], most=most)
    if category:
        words = _("%(cap)s of category %(category)s", cap=words, category=category)
    return _("%(cap)s, and %(used)s are used", cap=words, used=used) if used else words


def delivery(said: str | None) -> str:
    """Say when a preference wants to be told: hourly, daily or weekly."""
    kind, *more = (said or "now").split()
    if kind == "hourly":
        return _("hourly")
    if kind == "daily":
        return _("daily at %(time)s", time=more[0])
    if kind == "weekly":
        return _("weekly, %(day)s at %(time)s", day=_(_DAYS[more[0]]), time=more[1])
    return said or ""
