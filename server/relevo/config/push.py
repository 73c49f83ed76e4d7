"""Sending: the push service, its rate, breakers and brakes, and receipts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import SecretStr

from relevo.config.kinds import ExistingFile, Names, SecretFile, WebAddress
from relevo.config.setting import DAY, HOUR, MINUTE, SECOND, Derived, Theme, between, everyday, expert, of_lease, tuning
from relevo.core.known_services import SERVICES

RECEIPT_GIVE_UP_MS = DAY
"""How long after sending a delivery without a receipt ends as unconfirmed: Expo keeps receipts for a day."""


_FIRST_POLL_MS = 15 * MINUTE
_FIRST_POLL_ON_SANDBOX_MS = 6 * SECOND


def _first_poll_ms(data: dict[str, Any]) -> int:
    """Return less with the embedded sandbox, where a person waits."""
    elsewhere = (data["database_url"], data["expo_base_url"], data["expo_access_token"])
    return _FIRST_POLL_MS if any(elsewhere) else _FIRST_POLL_ON_SANDBOX_MS


class Push(Theme):
    """Sending, receipts and news to your app."""

    expo_base_url: WebAddress | None = everyday(
        "The address of Expo's push service, for a sandbox. Default: Expo's own, or an embedded sandbox if "
        "nothing is set."
    )
    expo_access_token: SecretStr | None = everyday("Expo's access token, which enhanced push security requires.")
    expo_access_tokens: SecretStr | None = tuning(
        "Expo's access tokens by project, as a JSON object; EXPO_ACCESS_TOKEN is for all other projects."
    )
    expo_access_tokens_file: SecretFile | None = everyday(
        'A file of mode 600 with Expo\'s access tokens by project, as JSON; "*" stands for all other projects. '
        "Relevo reads a changed file again: a rotation needs no restart."
    )
    push_projects_file: SecretFile | None = everyday(
        f"A file of mode 600 with each project's credentials by push service, as JSON: {', '.join(SERVICES)}. Relevo "
        "reads it again when it, or a file that it names, changes. The page on native push has an example."
    )
    push_projects: SecretStr | None = tuning(
        "The JSON of PUSH_PROJECTS_FILE as a value, for secrets from the environment."
    )
    webhooks_file: SecretFile | None = everyday(
        "A file of mode 600 with webhooks by name, as JSON: url, secret (whsec_…; two during a rotation), and the "
        "project if only one may use it. Relevo reads a changed file again."
    )
    push_rate_per_second: Annotated[int, between(0, 1_000_000)] = everyday(
        "Pushes a second that one project may send, in the whole fleet; 0 removes the limit.", 600
    )
    push_ttl_s: Annotated[int, between(1, 2_419_200)] = tuning(
        "How long the push service keeps a push of an event without a deadline.", 86_400
    )
    push_quiet_channel: str = tuning(
        "The notification channel on Android for pushes that are silent in quiet hours. Without it they use the "
        "event's own channel, which rings as the app configured it.",
        "",
    )
    push_urgent_share_percent: Annotated[int, between(1, 99)] = tuning(
        "The urgent lane's share of the rate while both lanes are full; the bulk lane gets the rest.", 50
    )
    push_request_timeout_ms: Annotated[int, between(10, HOUR)] = tuning(
        "The longest request to a push service.", of_lease(10 * SECOND, 4)
    )
    push_chunk_size: Annotated[int, between(1, 100)] = expert("The most pushes in one request.", 100)
    push_breaker_failures: Annotated[int, between(1, 1_000)] = tuning(
        "Failed requests in a row, or events in a row refused with 400, that open a project's breaker.", 5
    )
    push_runaway_brake: bool = tuning(
        "Whether Relevo holds events that repeat far more often than before, until an operator releases them. It "
        "never holds urgent events.",
        True,
    )
    push_runaway_min_events: Annotated[int, between(1, 1_000_000)] = tuning(
        "Events an hour of one type and origin that a phone may get before the runaway brake holds them, if the "
        "phone has known both for a week.",
        100,
    )
    push_runaway_first_events: Annotated[int, between(1, 1_000_000)] = tuning(
        "Events an hour of one type and origin that a phone may get before the runaway brake holds them, if type "
        "and origin are new to the phone, or the event is personal.",
        1_000,
    )
    webpush_hosts: Names | None = tuning(
        "Hosts of Web Push that phones may name beside the known browsers' (comma-separated), with or without a "
        "port. A leading dot stands for all names below. A host without that dot may be in a private network."
    )
    fcm_base_url: WebAddress | None = expert("The address of FCM, for a sandbox. Default: Google's own.")
    apns_base_url: WebAddress | None = expert("The address of APNs, for a sandbox. Default: Apple's own.")
    apns_sandbox_base_url: WebAddress | None = expert(
        "The address of APNs for phones of the environment sandbox. Default: Apple's own."
    )
    push_ca_file: ExistingFile | None = expert(
        "A file of further certificates that Relevo trusts for all push services and webhooks, such as a "
        "TLS-intercepting proxy's or a sandbox's."
    )
    receipt_first_poll_ms: Annotated[int, between(1, 12 * HOUR)] = expert(
        "How long after sending Relevo first fetches a receipt.",
        Derived(
            _first_poll_ms,
            f"{_FIRST_POLL_MS}, with the embedded sandbox {_FIRST_POLL_ON_SANDBOX_MS}",
            _FIRST_POLL_MS,
        ),
    )
    receipt_chunk_size: Annotated[int, between(1, 1_000)] = expert("The most receipts in one request.", 300)
    news_backlog_limit: Annotated[int, between(1, 10_000_000)] = tuning(
        "News that may wait for a subscription. Relevo drops the oldest beyond that, and counts them.", 100_000
    )

    @property
    def push_connect_timeout_ms(self) -> int:
        """How long connecting to the push service may take."""
        return min(3 * SECOND, self.push_request_timeout_ms)
