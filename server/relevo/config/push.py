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
        "The address of the push service; without it Expo's own, or with no setting at all an embedded sandbox."
    )
    expo_access_token: SecretStr | None = everyday("The token that is sent to Expo; needed by enhanced push security.")
    expo_access_tokens: SecretStr | None = tuning(
        "Access tokens of single projects as a JSON object by project; EXPO_ACCESS_TOKEN is for all others."
    )
    expo_access_tokens_file: SecretFile | None = everyday(
        "A file with such a JSON object instead, which nobody but its owner may read (mode 600). It is read again when "
        'it changed, so that a token is rotated without a restart; "*" stands for every project that it does not name.'
    )
    push_projects_file: SecretFile | None = everyday(
        f"A file of mode 600 with each project's credentials by push service as JSON: {', '.join(SERVICES)}. It is "
        "read again when it, or a file that it names, has changed; the page on native push has an example."
    )
    push_projects: SecretStr | None = tuning("The same JSON as a value, for where secrets come by the environment.")
    webhooks_file: SecretFile | None = everyday(
        "A file of mode 600 with the addresses of webhooks as JSON: url and secret (whsec_…) by name, or two secrets "
        "while one takes over, and the project if only one may use it; it is read again when it has changed."
    )
    push_rate_per_second: Annotated[int, between(0, 1_000_000)] = everyday(
        "How many pushes a second one project may send, in the whole fleet; 0 lifts the limit.", 600
    )
    push_ttl_s: Annotated[int, between(1, 2_419_200)] = tuning(
        "For how many seconds the push service keeps a push of an event without a deadline.", 86_400
    )
    push_quiet_channel: str = tuning(
        "The notification channel on Android for pushes that go silently in quiet hours; without it they go by the "
        "event's own channel, which rings as the app set it up.",
        "",
    )
    push_urgent_share_percent: Annotated[int, between(1, 99)] = tuning(
        "The share of the rate that is the urgent lane's while both lanes are full; bulk has the rest.", 50
    )
    push_request_timeout_ms: Annotated[int, between(10, HOUR)] = tuning(
        "How long one request to the push service may take, in milliseconds.", of_lease(10 * SECOND, 4)
    )
    push_chunk_size: Annotated[int, between(1, 100)] = expert("How many pushes travel in one request at most.", 100)
    push_breaker_failures: Annotated[int, between(1, 1_000)] = tuning(
        "After this many failed requests, or events refused with a 400, in a row a project's breaker opens.", 5
    )
    push_runaway_brake: bool = tuning(
        "Whether what comes again and again, far above its own past, is held until released; urgent ones never are.",
        True,
    )
    push_runaway_min_events: Annotated[int, between(1, 1_000_000)] = tuning(
        "The runaway brake lets a phone have this many events an hour of a type and origin that it knows for a week.",
        100,
    )
    push_runaway_first_events: Annotated[int, between(1, 1_000_000)] = tuning(
        "The runaway brake lets a phone have this many events an hour of a type and origin that is new, or personal.",
        1_000,
    )
    webpush_hosts: Names | None = tuning(
        "Further hosts of Web Push that phones may name, beside those of the known browsers: names separated by "
        "commas, each maybe with a port; one that begins with a dot stands for all names below it. A host that is "
        "named without a dot may be in a private network."
    )
    fcm_base_url: WebAddress | None = expert("The address of FCM, for a sandbox; without it Google's own.")
    apns_base_url: WebAddress | None = expert("The address of APNs, for a sandbox; without it Apple's own.")
    apns_sandbox_base_url: WebAddress | None = expert(
        "The same for phones of the environment sandbox; without it Apple's own."
    )
    push_ca_file: ExistingFile | None = expert(
        "A file of certificates that are trusted by all push services and webhooks, beside the known ones: those of a "
        "proxy that looks into TLS, or of a sandbox."
    )
    receipt_first_poll_ms: Annotated[int, between(1, 12 * HOUR)] = expert(
        "How long after sending its receipt is first fetched, in milliseconds.",
        Derived(
            _first_poll_ms,
            f"{_FIRST_POLL_MS}, with the embedded sandbox {_FIRST_POLL_ON_SANDBOX_MS}",
            _FIRST_POLL_MS,
        ),
    )
    receipt_chunk_size: Annotated[int, between(1, 1_000)] = expert(
        "How many receipts one request fetches at most.", 300
    )
    news_backlog_limit: Annotated[int, between(1, 10_000_000)] = tuning(
        "How many news a subscription may have waiting; beyond that the oldest are dropped and counted.", 100_000
    )

    @property
    def push_connect_timeout_ms(self) -> int:
        """How long connecting to the push service may take."""
        return min(3 * SECOND, self.push_request_timeout_ms)
