"""APNs' provider tokens: every process signs the same one, from the issue time that all of them share.

Apple refuses tokens that are older than an hour, and keys that show a new token within 20 minutes
(TooManyProviderTokenUpdates). Signatures are deterministic: a key, its names and an issue time make one token,
wherever it is made. So the issue time of each key is a row of the database, which one process renews for all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import psycopg
import structlog
from cryptography.hazmat.primitives.asymmetric import ec

from relevo.core import queries
from relevo.core.errors import DatabaseUnavailableError
from relevo.core.logs import normalise_error
from relevo.database.pool import Database
from relevo.providers import es256
from relevo.providers.apns.entry import ApnsEntry
from relevo.providers.push_projects import PushProject

LIVES_S = 2_400
"""How long a token is used."""
SHORTEST_S = 1_200
"""No token is replaced sooner."""
OLDEST_S = 3_300
"""How long a token is used if no other issue time can be read; well below an hour, for clocks differ."""
READ_EVERY_S = 60.0
"""How often a process reads whether another one renewed the token: one that Apple called expired is renewed early."""
_MOST_KEPT = 1_000

_SQL = queries.load("apns")
_log = structlog.get_logger("relevo.providers")


class NoIssueTimeError(Exception):
    """No issue time could be read, and the last token is too old."""


class IssueTime(NamedTuple):
    """When the token of a key was issued, in seconds since 1970, and how many seconds ago that was."""

    at: int
    age_s: float


class IssueTimes(Protocol):
    """Where the issue times of all keys are kept."""

    def get(self, team_id: str, key_id: str, longest_s: int) -> IssueTime:
        """Return the issue time of a key's token, and issue another one first if it is older than that."""


class SharedIssueTimes:
    """The issue times in the database, the same for every process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, team_id: str, key_id: str, longest_s: int) -> IssueTime:
        """Return the issue time of a key's token; raises DatabaseUnavailableError or psycopg.Error."""
        asked = {"team_id": team_id, "key_id": key_id, "longest_s": longest_s}
        row = self._database.execute(_SQL["get_issue_time"], asked, "bound_transaction").fetchone()
        assert row is not None
        return IssueTime(*row)


class OwnIssueTimes:
    """The issue times of one process that has no database."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._issued: dict[tuple[str, str], int] = {}

    def get(self, team_id: str, key_id: str, longest_s: int) -> IssueTime:
        """Return the issue time of a key's token."""
        now = self._clock()
        issued = self._issued.get((team_id, key_id))
        if issued is None or now - issued >= longest_s:
            issued = self._issued[team_id, key_id] = int(now)
        return IssueTime(issued, now - issued)


class _Kept(NamedTuple):
    """A token, when it was issued by this process's monotonic clock, and when that was last read."""

    token: str
    issued_at: float
    read_at: float


class ApnsTokens:
    """The tokens that this process uses."""

    def __init__(self, times: IssueTimes, *, read_every_s: float = READ_EVERY_S) -> None:
        self._times = times
        self._read_every_s = read_every_s
        self._kept: dict[tuple[str, str, str], _Kept] = {}

    def get(self, project: PushProject[ApnsEntry]) -> str:
        """Return a project's token: the one that every process uses now.

        Raises NoIssueTimeError if no issue time can be read, and the last token is too old.
        """
        kept, now = self._kept.get(_named(project)), time.monotonic()
        if kept is not None and now - kept.issued_at < LIVES_S and now - kept.read_at < self._read_every_s:
            return kept.token
        return self._read(project, LIVES_S)

    def younger(self, project: PushProject[ApnsEntry]) -> str:
        """Return the token after Apple called one expired: another one, unless that was issued within 20 minutes."""
        return self._read(project, SHORTEST_S)

    def forget(self, project: PushProject[ApnsEntry]) -> None:
        """Read the issue time anew before the next push: Apple says that several tokens are in use."""
        self._kept.pop(_named(project), None)

    def _read(self, project: PushProject[ApnsEntry], longest_s: int) -> str:
        named, entry = _named(project), project.entry
        kept, now = self._kept.get(named), time.monotonic()
        try:
            issue = self._times.get(entry.team_id, entry.key_id, longest_s)
        except (DatabaseUnavailableError, psycopg.Error) as error:
            _log.warning("apns_issue_time_not_read", key=entry.key_id, error=normalise_error(error, 200))
            if kept is None or now - kept.issued_at > OLDEST_S:
                raise NoIssueTimeError("the issue time of the provider token could not be read") from error
            return kept.token
        token = _signed(load_key(project), entry.key_id, entry.team_id, issue.at)
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[named] = _Kept(token, now - issue.age_s, now)
        return token


def check(project: PushProject[ApnsEntry]) -> None:
    """Raise ValueError if a project's key cannot sign."""
    load_key(project)


def load_key(project: PushProject[ApnsEntry]) -> ec.EllipticCurvePrivateKey:
    """Return a project's key; raises ValueError."""
    try:
        key: ec.EllipticCurvePrivateKey = es256.from_pem(project.secret)
    except es256.UNREADABLE:
        raise ValueError("its key is no private key in PEM, as Apple's .p8 file is") from None
    if not es256.is_p256(key):
        raise ValueError("its key is none of the curve P-256, as Apple's are")
    return key


def _named(project: PushProject[ApnsEntry]) -> tuple[str, str, str]:
    return project.secret, project.entry.key_id, project.entry.team_id


def _signed(key: ec.EllipticCurvePrivateKey, key_id: str, team_id: str, issued_at: int) -> str:
    return es256.signed(key, {"alg": "ES256", "kid": key_id}, {"iss": team_id, "iat": issued_at}, same=True)
