"""Access tokens for FCM, by google-auth: a service account's, or those of the machine's own account."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

import google.auth
import requests
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from relevo.core.logs import normalise_error, scrub
from relevo.core.proxies import Proxies
from relevo.providers.fcm.entry import FcmEntry
from relevo.providers.push_projects import PushProject

SCOPES = ("https://www.googleapis.com/auth/firebase.messaging",)
RENEW_EARLY_S = 300.0
_FIELDS = ("client_email", "private_key", "token_uri")
_SHORTEST_S = 60.0
_MOST_ACCOUNTS = 1_000


class Token(NamedTuple):
    """An access token, and until when by this process's monotonic clock."""

    text: str
    until: float


class NoTokenError(Exception):
    """No access token could be had; `refused` says whether Google refused the account, or nobody answered."""

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message)
        self.refused = refused


def check(project: PushProject[FcmEntry]) -> None:
    """Raise ValueError if a project's service account cannot be used as it stands."""
    if not project.entry.default_credentials:
        _of_service_account(project)
    project_id(project)


def project_id(project: PushProject[FcmEntry]) -> str:
    """Return the Firebase project: as the entry says, or as its service account does."""
    if project.entry.project_id:
        return project.entry.project_id
    found = None
    if project.secret:
        found = _account(project).get("project_id")
    if not isinstance(found, str) or not found.isascii() or not found.isprintable() or {"/", " "} & set(found):
        raise ValueError("it needs a project_id")
    return found


def _account(project: PushProject[FcmEntry]) -> dict[str, Any]:
    try:
        read = json.loads(project.secret)
    except (ValueError, RecursionError):
        raise ValueError("its service account is no JSON") from None
    if not isinstance(read, dict):
        raise ValueError("its service account is no JSON object")  # noqa: TRY004 the caller's complaint
    return read


def _of_service_account(project: PushProject[FcmEntry]) -> Any:
    account = _account(project)
    if missing := [name for name in _FIELDS if not isinstance(account.get(name), str)]:
        raise ValueError(f"its service account has no {', '.join(missing)}")
    try:
        return service_account.Credentials.from_service_account_info(  # type: ignore[no-untyped-call]
            account, scopes=SCOPES
        )
    except (ValueError, GoogleAuthError) as error:
        raise ValueError(f"its service account's private_key cannot be read ({type(error).__name__})") from None


class _Account:
    """One account's token: read by all, renewed by one at a time."""

    def __init__(self) -> None:
        self.credentials: Any = None
        self.lock = threading.Lock()
        self.token: Token | None = None


class FcmTokens:
    """The access tokens of this process, by account."""

    def __init__(self, *, ca_file: str | None = None, proxies: Proxies | None = None, timeout_s: float = 10.0) -> None:
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = ca_file or True
        self._session.hooks["response"].append(self._note_date)
        self.date: str | None = None
        """What the token endpoint last said that the time is."""
        self._proxies = proxies or Proxies()
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._accounts: dict[str, _Account] = {}

    def get(self, project: PushProject[FcmEntry]) -> str:
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

    def drop(self, project: PushProject[FcmEntry], text: str) -> None:
        """Forget a token that FCM refused, unless it was replaced already."""
        account = self._account(project)
        with account.lock:
            if account.token is not None and account.token.text == text:
                account.token = None

    def close(self) -> None:
        """Close the connections to the token endpoint."""
        self._session.close()

    def _account(self, project: PushProject[FcmEntry]) -> _Account:
        with self._lock:
            if len(self._accounts) >= _MOST_ACCOUNTS:  # those of long ago are among them: accounts are rotated
                self._accounts.clear()
            return self._accounts.setdefault(project.secret, _Account())

    def _renewed(self, account: _Account, project: PushProject[FcmEntry]) -> Token:
        """Return a new token; if none can be had now, the one that still holds."""
        try:
            if account.credentials is None:
                account.credentials = self._credentials(project)
            return self._refresh(account.credentials)
        except NoTokenError:
            if account.token is not None and time.monotonic() < account.token.until:
                return account.token
            raise

    def _credentials(self, project: PushProject[FcmEntry]) -> Any:
        if project.secret:
            return _of_service_account(project)
        try:
            return google.auth.default(scopes=SCOPES, request=self._request)[0]  # type: ignore[arg-type]
        except (GoogleAuthError, requests.RequestException, OSError, ValueError) as error:
            raise NoTokenError(
                normalise_error(error, 200), refused=isinstance(error, DefaultCredentialsError)
            ) from None

    def _refresh(self, credentials: Any) -> Token:
        try:
            credentials.refresh(self._request)
        except RefreshError as error:
            said = str(error.args[0]) if error.args else "the token endpoint refused"
            raise NoTokenError(scrub(" ".join(said.split()))[:200], refused=not error.retryable) from None
        except (GoogleAuthError, requests.RequestException, OSError, ValueError) as error:
            raise NoTokenError(f"no token endpoint ({type(error).__name__})", refused=False) from None
        left_s = (credentials.expiry.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
        return Token(str(credentials.token), time.monotonic() + max(left_s, _SHORTEST_S))

    def _note_date(self, answer: requests.Response, *_args: Any, **_more: Any) -> None:
        self.date = answer.headers.get("Date")

    def _request(self, url: str, *args: Any, **more: Any) -> Any:
        """Ask the token endpoint, as google-auth does it; it tries up to three times."""
        proxy = self._proxies.for_url(url)
        more["proxies"] = {"http": proxy, "https": proxy} if proxy else None
        more["timeout"] = min(more.get("timeout") or self._timeout_s, self._timeout_s / 4)
        return Request(self._session)(url, *args, **more)
