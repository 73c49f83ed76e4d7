"""Access tokens for FCM, by google-auth: a service account's, or those of the machine's own account."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import google.auth
import requests
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError
from google.auth.transport.requests import Request
from google.oauth2 import service_account

from relevo.core.logs import normalise_error, scrub
from relevo.providers.access_tokens import SHORTEST_S, AccessTokens, Account, NoTokenError, Token
from relevo.providers.fcm.entry import FcmEntry
from relevo.providers.push_projects import PushProject

SCOPES = ("https://www.googleapis.com/auth/firebase.messaging",)
_FIELDS = ("client_email", "private_key", "token_uri")


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


class FcmTokens(AccessTokens[FcmEntry]):
    """The access tokens of this process, by account."""

    def _fetch(self, account: Account, project: PushProject[FcmEntry]) -> Token:
        if account.credentials is None:
            account.credentials = self._credentials(project)
        return self._refresh(account.credentials)

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
        return Token(str(credentials.token), time.monotonic() + max(left_s, SHORTEST_S))

    def _request(self, url: str, *args: Any, **more: Any) -> Any:
        """Ask the token endpoint, as google-auth does it; it tries up to three times."""
        more["proxies"] = self._proxies_for(url)
        more["timeout"] = min(more.get("timeout") or self._timeout_s, self._timeout_s / 4)
        return Request(self._session)(url, *args, **more)
