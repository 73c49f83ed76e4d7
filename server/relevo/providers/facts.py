"""What may be said of a push service without asking it: the form of `providers/<name>/facts.py`.

Facts are plain values that import nothing else of Relevo, so that the client and every command have them at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Platform = Literal["ios", "android", "web"]


APP_GONE = "The app was removed from this phone, or may show nothing any more."
TOO_MANY_FOR_PHONE = "Too many pushes went to this phone within a short time."
WRONG_CREDENTIALS = "The push credentials of this project are wrong: renew them at the push service."
OWN_PROBLEM = "The push service had a problem of its own."
SLOWER = "The push service asked Relevo to slow down."
"""What codes of several push services mean alike."""


class Code(NamedTuple):
    """An error code of a push service: its words, and its row in the guide's page on states and errors."""

    means: str = ""
    """What it means, for pages and commands; dashboard.po has its Spanish. Nothing: others say it."""
    does: str = ""
    """What Relevo does, in Markdown; a code without it has no row."""
    mend: str = "nothing"
    """What its reader does."""
    aside: str = ""
    """What stands behind the code in its row."""
    is_outage: bool = False
    """Whether the push service has to recover by itself, when a breaker opened for it."""


@dataclass(frozen=True)
class ProviderFacts:
    """What a push service bears and offers; settings of a project may override rate, connections and chunk size."""

    label: str
    """Its name for people."""
    rate_per_s: int = 0
    """How many pushes one project may send; 0: there is no limit."""
    ramp_s: int = 0
    """Over how many seconds the rate grows to its fullness after a rest."""
    connections: int = 6
    """How many requests of one project may be under way at once, in the whole fleet."""
    least_retry_ms: int = 0
    """What was tried is never tried again sooner."""
    max_payload_bytes: int = 4_096
    platforms: tuple[str, ...] = ("ios", "android", "unknown")
    takes_silent: bool = True
    """Whether it takes pushes that show nothing."""


class Token(NamedTuple):
    """What a phone registers with."""

    words: str
    """What it is, within a sentence."""
    guide: str
    """The same for the guide, in Markdown."""
    beside: str
    """What a phone registers beside it, in Markdown."""
    form: str = ""
    """What it looks like, as a regular expression; nothing where that takes more."""
    complaint: str = ""
    """What is said of one that does not look so; `relevo.token_complaint` says the same in SQL."""


class Service(NamedTuple):
    """What is known of a push service that comes with Relevo."""

    name: str
    """In `provider` columns and PUSH_PROJECTS_FILE; of its folder in `providers/`, and of the extra that brings it."""
    sending: ProviderFacts
    """What dispatch respects."""
    platforms: tuple[Platform, ...]
    """Those of its phones, as far as pushes are written for each in its own way."""
    token: Token
    part: Literal["platform", "environment", "host"] | None = None
    """By what a project's phones are kept apart: what goes wrong with one part stops no other."""
    fields: Mapping[str, tuple[str, ...]] = {}
    """By field of an event, what it is on each of `platforms`: "" nothing, "=" the same, "~…" changed, else its name
    there. A field that is not in it reaches none of its phones."""
    codes: Mapping[str, Code] = {}
    """Its error codes."""

    @property
    def label(self) -> str:
        """Return its name for people."""
        return self.sending.label

    @property
    def max_bytes(self) -> int:
        """Return how many bytes a push may have."""
        return self.sending.max_payload_bytes
