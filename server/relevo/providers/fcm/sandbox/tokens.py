"""Registration tokens of FCM in the sandbox: `ana!UNREGISTERED` is the phone ana with that fault."""

from __future__ import annotations

from relevo.providers.fcm.facts import SERVICE as FACTS
from relevo.providers.fcm.sandbox.answers import CODES
from relevo.sandbox.push_service import Device, PushService, Trial
from relevo.sandbox.waiting import Keeping


class FcmInSandbox(PushService):
    """FCM, whose tokens are the text itself."""

    name = FACTS.name
    addresses = ("fcm",)
    answers = CODES
    app_word = "project"
    has_token_endpoint = True
    keeping = Keeping(places=4, drops_all=True)
    keeps = "one message for each of four collapse keys, and 100 without one: with the next, FCM drops all of these"
    checks = (
        "gives access tokens at `/token` for assertions that the service account signed; accepts "
        "messages with one target, texts alone in `data`, and at most 4,096 bytes"
    )
    trial = Trial(
        "android",
        "android",
        "android",
        gone="UNREGISTERED",
        broken="502",
        throttled=("QUOTA_EXCEEDED", "retry-after=7"),
        dead="BAD_REQUEST",
        dead_code="INVALID_ARGUMENT",
        refused="UNAUTHENTICATED",
    )

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
