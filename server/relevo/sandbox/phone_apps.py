"""The app on a phone of the sandbox: it tells Relevo what the kits tell, with the installation's own secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import UUID

import requests

from relevo.core.errors import InvalidInputError

LOCALES = ("en", "es", "es-CL", "pl", "pt-BR")
"""Languages to choose from; some have more than two forms for numbers."""
Touch = Literal["tapped", "read", "not told", "dismissed"]
"""The outcome of a push on the screen; `tapped` if no app is known, `not told` if Relevo did not answer."""

_TIMEOUT_S = 10.0
_MOST = 2_000
_MISSING = 404


@dataclass
class PhoneApp:
    """An app that is registered with Relevo."""

    url: str
    installation_id: UUID
    secret: str = field(repr=False)
    locale: str | None = None

    @classmethod
    def of(cls, given: Any) -> PhoneApp:
        """Read it from an admin call; raises InvalidInputError."""
        names = ("url", "installationId", "secret")
        texts = [str(given[name]) for name in names if _is_text(given.get(name))] if isinstance(given, dict) else []
        if len(texts) < len(names) or len(given) > len(names):
            raise InvalidInputError("An app is told by url, installationId and secret, each a text.")
        url, installation_id, secret = texts
        if urlsplit(url).scheme not in ("http", "https"):
            raise InvalidInputError("The url of an app must be Relevo's address, such as http://127.0.0.1:8080.")
        try:
            return cls(url.rstrip("/"), UUID(installation_id), secret)
        except ValueError:
            raise InvalidInputError("installationId must be a UUID.") from None

    def tap(self, data: Mapping[str, Any], action: str = "") -> Touch:
        """Report a tap and its button, if the push asks for that, and mark what it leads to as read."""
        try:
            if data.get("reportOpened") in (True, "true"):
                opened = {"delivery_id": int(data["notificationDeliveryId"]), **({"action": action} if action else {})}
                self._call("POST", f"/v1/installations/{self.installation_id}/opened", opened)
            self._call("POST", f"/v1/inbox/{int(data['notificationEventId'])}/read", {})
        except (OSError, ValueError, TypeError, LookupError):  # requests' are OSErrors; anybody may have sent the data
            return "not told"
        return "read"

    def speak(self, locale: str) -> bool:
        """Report the phone's new language to Relevo; return whether Relevo answered."""
        try:
            self._call("PUT", f"/v1/installations/{self.installation_id}", {"locale": locale})
        except OSError:
            return False
        self.locale = locale
        return True

    def _call(self, method: str, path: str, body: Mapping[str, Any]) -> None:
        with requests.Session() as session:
            session.trust_env = False  # no proxy leads to loopback
            headers = {"Authorization": f"Bearer {self.secret}"}
            answer = session.request(method, f"{self.url}{path}", json=body, headers=headers, timeout=_TIMEOUT_S)
            if answer.status_code != _MISSING:  # what stays out of inboxes has no mark
                answer.raise_for_status()


def _is_text(given: object) -> bool:
    return isinstance(given, str) and 0 < len(given) <= _MOST
