"""Access tokens for Huawei Push Kit, each for an app's id and secret."""

from __future__ import annotations

import time

import requests

from relevo.core.logs import scrub
from relevo.providers.access_tokens import SHORTEST_S, AccessTokens, Account, NoTokenError, Token
from relevo.providers.huawei.entry import HuaweiEntry
from relevo.providers.push_projects import PushProject

_PATH = "/oauth2/v3/token"
_OK, _SERVER_ERROR = 200, 500
_TOO_MANY = 429
_MAX_SECRET = 1_000


def check(project: PushProject[HuaweiEntry]) -> None:
    """Raise ValueError if a project's secret cannot be used as it stands."""
    secret = project.secret.strip()
    if not 0 < len(secret) <= _MAX_SECRET or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise ValueError("its client_secret must be one word of ASCII")


class HuaweiTokens(AccessTokens[HuaweiEntry]):
    """The access tokens of this process, by app."""

    def _key(self, project: PushProject[HuaweiEntry]) -> str:
        return f"{project.entry.token_url} {project.entry.app_id} {project.secret}"

    def _fetch(self, account: Account, project: PushProject[HuaweiEntry]) -> Token:  # noqa: ARG002 nothing is kept
        url = f"{project.entry.token_url}{_PATH}"
        form = {
            "grant_type": "client_credentials",
            "client_id": project.entry.app_id,
            "client_secret": project.secret.strip(),
        }
        try:
            answer = self._session.post(
                url, data=form, timeout=self._timeout_s / 4, proxies=self._proxies_for(url), allow_redirects=False
            )
            told = answer.json()
        except (requests.RequestException, ValueError) as error:
            raise NoTokenError(f"no token endpoint ({type(error).__name__})", refused=False) from None
        token, left_s = (told.get(key) for key in ("access_token", "expires_in")) if isinstance(told, dict) else (0, 0)
        if answer.status_code == _OK and isinstance(token, str) and isinstance(left_s, int | float):
            return Token(token, time.monotonic() + max(left_s, SHORTEST_S))
        words = str(told.get("error_description", "the token endpoint refused") if isinstance(told, dict) else told)
        refused = answer.status_code < _SERVER_ERROR and answer.status_code != _TOO_MANY
        raise NoTokenError(scrub(" ".join(words.split()))[:200], refused=refused)
