"""Facts about a push service that need no request: the form of `providers/<name>/facts.py`.

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
"""Common meanings of codes of several push services."""


class Code(NamedTuple):
    """An error code of a push service: its words, and its row in the guide's page on states and errors."""

    means: str = ""
    """The code's meaning, for pages and commands; dashboard.po has its Spanish. Empty if another table has it."""
    does: str = ""
    """Relevo's reaction, in Markdown; a code without it has no row."""
    mend: str = "nothing"
    """The reader's action."""
    aside: str = ""
    """An addition behind the code in its row."""
    is_outage: bool = False
    """Whether the push service has to recover by itself, when a breaker opened for it."""


@dataclass(frozen=True)
class ProviderFacts:
    """Limits and abilities of a push service; a project's settings may override rate, connections and chunk size."""

    label: str
    """The service's name for people."""
    rate_per_s: int = 0
    """How many pushes one project may send; 0: there is no limit."""
    ramp_s: int = 0
    """Over how many seconds the rate grows to its fullness after a rest."""
    connections: int = 6
    """How many requests of one project may be under way at once, in the whole fleet."""
    least_retry_ms: int = 0
    """The shortest time between two tries of one delivery."""
    max_payload_bytes: int = 4_096
    platforms: tuple[str, ...] = ("ios", "android", "unknown")
    takes_silent: bool = True
    """Whether it takes pushes that show nothing."""


class Token(NamedTuple):
    """The name of the token that a phone registers."""

    words: str
    """The token, within a sentence."""
    guide: str
    """The same for the guide, in Markdown."""
    beside: str
    """The fields that a phone registers beside it, in Markdown."""
    form: str = ""
    """The token's form, as a regular expression; empty if the check needs more."""
    complaint: str = ""
    """The refusal of a token of another form; `relevo.token_complaint` has the same in SQL."""


class Service(NamedTuple):
    """The facts of a push service that comes with Relevo."""

    name: str
    """In `provider` columns and PUSH_PROJECTS_FILE; of its folder in `providers/`, and of the extra that brings it."""
    sending: ProviderFacts
    """The limits for dispatch."""
    platforms: tuple[Platform, ...]
    """Those of its phones, as far as pushes are written for each in its own way."""
    token: Token
    part: Literal["platform", "environment", "host"] | None = None
    """By what a project's phones are kept apart: what goes wrong with one part stops no other."""
    fields: Mapping[str, tuple[str, ...]] = {}
    """By field of an event, what it is on each of `platforms`: "" nothing, "=" the same, "~…" changed, else its name
    there. A field that is not in it reaches none of its phones."""
    codes: Mapping[str, Code] = {}
    """The service's error codes."""

    @property
    def label(self) -> str:
        """Return its name for people."""
        return self.sending.label

    @property
    def max_bytes(self) -> int:
        """Return how many bytes a push may have."""
        return self.sending.max_payload_bytes
