"""The rules of each project: the settings' for Expo, for other providers their facts, and what a project overrides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from relevo.config import Settings
from relevo.core.known_services import NATIVE, SERVICES
from relevo.core.ports import ProviderFacts, PushProvider
from relevo.core.sending_project import SendingProject
from relevo.delivery.projects import rate_and_breaker
from relevo.delivery.projects.rate_and_breaker import SendingRules

Overrides = Callable[[SendingProject], Mapping[str, int]]
"""Returns what a project has other than its provider: `rate_per_second`, `connections`, `chunk_size`."""


def rules_of(settings: Settings) -> SendingRules:
    """Return the numbers behind the decisions that the settings ask for: Expo's, and those of who has no facts."""
    return SendingRules(
        rate_per_s=settings.push_rate_per_second,
        urgent_share=settings.push_urgent_share_percent / 100,
        chunk=settings.push_chunk_size,
        breaker_failures=settings.push_breaker_failures,
        probe_ms=settings.outbox_lease_duration_ms,
        receipt_probe_ms=settings.outbox_lease_duration_ms + 2 * settings.receipt_first_poll_ms,
        connections=settings.outbox_concurrency,
    )


class ProviderRules:
    """The rules of every project that this worker serves."""

    def __init__(
        self,
        settings: Settings,
        providers: Mapping[str, PushProvider] | None = None,
        overrides: Overrides = lambda _project: {},
    ) -> None:
        self._usual = rules_of(settings)
        self._providers = providers or {}
        self._overrides = overrides

    def of(self, project: str) -> SendingRules:
        """Return the rules of a project, as its overrides are now."""
        parsed, rules = SendingProject.parse(project), self._usual
        given, provider = self._overrides(parsed), self._providers.get(parsed.provider)
        facts = getattr(provider, "facts", None)
        if provider is None and self._providers and parsed.provider in NATIVE:  # in shadow mode
            facts = SERVICES[parsed.provider].sending
        if isinstance(facts, ProviderFacts):
            rules = replace(
                rules,
                rate_per_s=facts.rate_per_s,
                chunk=provider.max_messages if provider is not None else rules.chunk,
                connections=facts.connections,
                least_retry_ms=facts.least_retry_ms,
                ramp_s=facts.ramp_s,
                recovery_s=rate_and_breaker.recovery_s(facts.ramp_s) if facts.ramp_s else rules.recovery_s,
            )
        if not given:
            return rules
        return replace(
            rules,
            rate_per_s=given.get("rate_per_second", rules.rate_per_s),
            connections=given.get("connections", rules.connections),
            chunk=given.get("chunk_size", rules.chunk),
        )
