"""Push tokens of Huawei in the sandbox: `huawei-ana!80300007` is the phone ana with that fault."""

from __future__ import annotations

from relevo.providers.huawei.facts import SERVICE as FACTS
from relevo.providers.huawei.sandbox.answers import CODES
from relevo.sandbox.push_service import Device, PushService, Trial
from relevo.sandbox.waiting import Keeping

_MARK = "huawei-"


class HuaweiInSandbox(PushService):
    """Huawei, whose tokens are the text with a mark before it."""

    name = FACTS.name
    addresses = ("huawei",)
    answers = CODES
    has_token_endpoint = True
    keeping = Keeping()
    keeps = "the newest 100 messages"
    checks = (
        "gives access tokens at `/oauth2/v3/token` for the id and secret of the app; accepts messages "
        "with one token, a text as `data`, a `click_action` in a notification, and at most 4,096 bytes"
    )
    trial = Trial(
        "huawei",
        "android",
        "",
        gone="80300007",
        broken="81000001",
        throttled=("503", "retry-after=7"),
        dead="80300008",
        refused="80200001",
    )

    def token(self, name: str, *words: str, home: str | None = None) -> str:  # noqa: ARG002 its phones have none
        """Return a push token."""
        return _MARK + self.text(name, words)

    def read(self, token: str) -> Device:
        """Read a push token; one not made here has no faults."""
        return self.device(token.removeprefix(_MARK)) if self.owns(token) else Device(token, ())

    def owns(self, key: str) -> bool:
        """Return whether it was made here."""
        return key.startswith(_MARK)

    def label(self, key: str) -> str | None:
        """Return the phone's name, with its faults."""
        return key.removeprefix(_MARK) if self.owns(key) else None


SERVICE = HuaweiInSandbox()
