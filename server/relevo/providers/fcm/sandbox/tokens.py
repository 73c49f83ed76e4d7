"""Registration tokens of FCM in the sandbox: `ana!UNREGISTERED` is the phone ana with that fault."""

from __future__ import annotations

from relevo.providers.fcm.facts import SERVICE as FACTS
from relevo.providers.fcm.sandbox.answers import CODES
from relevo.sandbox.push_service import Device, PushService
from relevo.sandbox.waiting import Keeping


class FcmInSandbox(PushService):
    """FCM keeps four messages with a collapse key, and 100 without one: with the next all of these are dropped."""

    name = FACTS.name
    addresses = ("fcm",)
    answers = CODES
    app_word = "project"
    has_token_endpoint = True
    keeping = Keeping(places=4, drops_all=True)

    def token(self, name: str, *words: str, home: str | None = None) -> str:  # noqa: ARG002 its phones have none
        """Return a registration token."""
        return self.text(name, words)

    def read(self, token: str) -> Device:
        """Read a registration token; raises InvalidInputError for a word that does not exist."""
        return self.device(token)

    def owns(self, key: str) -> bool:  # noqa: ARG002 its tokens may be any text
        """Return true: what no other service knows is FCM's."""
        return True


SERVICE = FcmInSandbox()
