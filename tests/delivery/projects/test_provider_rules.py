"""The rules of a project: the settings' for Expo, its provider's own facts for others, and what it overrides."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from relevo.config import Settings
from relevo.core.ports import ProviderFacts
from relevo.core.sending_project import SendingProject
from relevo.delivery.projects import rate_and_breaker
from relevo.delivery.projects.provider_rules import ProviderRules
from relevo.delivery.projects.rate_and_breaker import Project, SendingRules

AT = datetime(2026, 11, 17, tzinfo=UTC)


class Fast:
    """A push service with facts of its own."""

    name, max_messages, max_receipts = "fcm", 100, 0
    facts = ProviderFacts("FCM", rate_per_s=10_000, ramp_s=60, connections=4, least_retry_ms=10_000)


def rules_for(project: str, overrides: Any = lambda _project: {}) -> SendingRules:
    """Return the rules of a project."""
    settings = Settings(push_rate_per_second=500, push_chunk_size=50, outbox_concurrency=3)
    providers: Any = {"fcm": Fast()}
    return ProviderRules(settings, providers, overrides).of(project)


def test_settings_are_expos_and_of_who_has_no_facts() -> None:
    """PUSH_RATE_PER_SECOND, PUSH_CHUNK_SIZE and OUTBOX_CONCURRENCY mean what they meant."""
    for project in ("@org/app", "webhook::default"):
        rules = rules_for(project)
        assert (rules.rate_per_s, rules.chunk, rules.connections, rules.ramp_s) == (500, 50, 3, 0)


def test_a_provider_has_its_own_numbers_and_a_project_others() -> None:
    """Facts count, whatever the settings say of Expo; overrides count before them, as they are by then."""
    rules = rules_for("fcm::shop::ios")
    assert (rules.rate_per_s, rules.chunk, rules.connections, rules.least_retry_ms) == (10_000, 100, 4, 10_000)
    given = {"rate_per_second": 100}
    asked: list[SendingProject] = []

    def overrides(project: SendingProject) -> dict[str, int]:
        asked.append(project)
        return dict(given)

    made = ProviderRules(Settings(), {"fcm": Fast()}, overrides)  # type: ignore[dict-item]
    assert made.of("fcm::shop::ios").rate_per_s == 100
    given["connections"] = 2
    assert made.of("fcm::shop::ios").connections == 2
    assert asked[0] == SendingProject("fcm", "shop", "ios")


def state(rules: SendingRules) -> Project:
    """Return a project as it begins."""
    share = rate_and_breaker.first_share(rules)
    return Project("fcm::shop::ios", 0, 0, AT, share, None, "closed", None, None, None, None, 0, 0, None)


def test_a_rate_ramps_up_over_its_time_after_a_rest() -> None:
    """It begins low, is not full before the ramp is over, and begins anew after nothing was sent for as long."""
    rules = rules_for("fcm::shop::ios")
    seen, shares = state(rules), []
    for second in range(1, 63):
        seen = rate_and_breaker.refill(seen, rules, AT + timedelta(seconds=second))
        shares.append(seen.rate_share)
    assert shares[0] < 0.1
    assert shares[57] < 1
    assert shares[60] == 1
    rested = rate_and_breaker.refill(seen, rules, AT + timedelta(minutes=3))
    assert rested.rate_share < 0.1
    without = replace(rules, ramp_s=0)
    assert rate_and_breaker.refill(seen, without, AT + timedelta(minutes=3)).rate_share == 1
