"""Access tokens of push services that give them out: one for each account, read by all threads, renewed by one."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Generic, NamedTuple, TypeVar

import requests

from relevo.core.proxies import Proxies
from relevo.providers.project_entry import Entry
from relevo.providers.push_projects import PushProject

RENEW_EARLY_S = 300.0
SHORTEST_S = 60.0
_MOST_ACCOUNTS = 1_000

E = TypeVar("E", bound=Entry)


class Token(NamedTuple):
    """An access token, and until when by this process's monotonic clock."""

    text: str
    until: float


class NoTokenError(Exception):
    """No access token could be had; `refused` says whether the account was refused, or nobody answered."""

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


class Account:
    """One account's token."""

    def __init__(self) -> None:
        self.credentials: Any = None
        """The state of its credentials from one token to the next."""
        self.lock = threading.Lock()
        self.token: Token | None = None


class AccessTokens(ABC, Generic[E]):
    """The access tokens of this process, by account."""

    def __init__(self, *, ca_file: str | None = None, proxies: Proxies | None = None, timeout_s: float = 10.0) -> None:
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = ca_file or True
        self._session.hooks["response"].append(self._note_date)
        self.date: str | None = None
        """The time by the last answer of the token endpoint."""
        self._proxies = proxies or Proxies()
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._accounts: dict[str, Account] = {}

    def get(self, project: PushProject[E]) -> str:
        """Return a project's access token, renewed early by one thread while the others go on with the last.

        Raises NoTokenError.
        """
        account = self._account(project)
        token, now = account.token, time.monotonic()
        if token is not None and now < token.until - RENEW_EARLY_S:
            return token.text
        if token is not None and now < token.until:
            if not account.lock.acquire(blocking=False):
                return token.text
        elif not account.lock.acquire(timeout=self._timeout_s):
            raise NoTokenError("another thread waits for the token endpoint", refused=False)
        try:
            if account.token is None or account.token is token:  # else another thread has renewed it
                account.token = self._renewed(account, project)
            return account.token.text
        finally:
            account.lock.release()

    def drop(self, project: PushProject[E], text: str) -> None:
        """Forget a token that the push service refused, unless it was replaced already."""
        account = self._account(project)
        with account.lock:
            if account.token is not None and account.token.text == text:
                account.token = None

    def close(self) -> None:
        """Close the connections to the token endpoint."""
        self._session.close()

    def _account(self, project: PushProject[E]) -> Account:
        with self._lock:
            if len(self._accounts) >= _MOST_ACCOUNTS:  # those of long ago are among them: accounts are rotated
                self._accounts.clear()
            return self._accounts.setdefault(self._key(project), Account())

    def _key(self, project: PushProject[E]) -> str:
        """Return what tells accounts apart."""
        return project.secret

    def _renewed(self, account: Account, project: PushProject[E]) -> Token:
        """Return a new token; if none can be had now, the one that still holds."""
        try:
            return self._fetch(account, project)
        except NoTokenError:
            if account.token is not None and time.monotonic() < account.token.until:
                return account.token
            raise

    @abstractmethod
    def _fetch(self, account: Account, project: PushProject[E]) -> Token:
        """Ask for a token; raises NoTokenError."""

    def _note_date(self, answer: requests.Response, *_args: Any, **_more: Any) -> None:
        self.date = answer.headers.get("Date")

    def _proxies_for(self, url: str) -> dict[str, str] | None:
        proxy = self._proxies.for_url(url)
        return {"http": proxy, "https": proxy} if proxy else None
