"""What a project may send, by table: the bucket, the breaker, the brakes and the size of a batch, without a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from relevo.delivery.projects import rate_and_breaker
from relevo.delivery.projects.rate_and_breaker import Evidence, Heard, Project, Refusal, SendingRules

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
RULES = SendingRules(
    rate_per_s=600,
    urgent_share=0.5,
    recovery_s=300,
    chunk=100,
    breaker_failures=5,
    breaker_pause_ms=30_000,
    breaker_pause_max_ms=900_000,
    probe_ms=60_000,
    receipt_probe_ms=1_860_000,
    credential_installations=5,
    credential_share=0.8,
    credential_window_ms=3_600_000,
    brake_share=0.2,
    brake_min=50,
)
FULL = Project(
    project="default",
    urgent_tokens=130.0,
    bulk_tokens=130.0,
    filled_at=NOW,
    rate_share=1.0,
    rest_until=None,
    breaker="closed",
    breaker_reason=None,
    breaker_by=None,
    breaker_since=None,
    probe_at=None,
    trips=0,
    failures=0,
    pruning_stopped_at=None,
)
EMPTY = replace(FULL, urgent_tokens=0.0, bulk_tokens=0.0)
OPEN = replace(
    FULL,
    breaker="open",
    breaker_reason="why",
    breaker_by="request",
    breaker_since=NOW,
    probe_at=NOW + timedelta(seconds=30),
    trips=1,
)
PROBING = replace(OPEN, breaker="probing", probe_at=NOW + timedelta(seconds=90))
BY_RECEIPT = replace(OPEN, breaker_by="receipt")


def after(seconds: float) -> datetime:
    """Return the time so many seconds later."""
    return NOW + timedelta(seconds=seconds)


class TestReserve:
    """Taking tokens."""

    @pytest.mark.parametrize(
        ("state", "lane", "wanted", "count", "why"),
        [
            (FULL, "bulk", 50, 50, "granted"),
            (FULL, "bulk", 100, 100, "granted"),
            (FULL, "bulk", 1_000, 100, "granted"),
            (FULL, "urgent", 1_000, 100, "granted"),
            (EMPTY, "bulk", 1, 0, "rate"),
            (replace(EMPTY, bulk_tokens=99.0), "bulk", 1_000, 0, "rate"),
            (replace(EMPTY, bulk_tokens=99.0), "bulk", 99, 99, "granted"),
            (replace(EMPTY, bulk_tokens=99.0), "urgent", 1, 0, "rate"),
            (replace(EMPTY, urgent_tokens=1.0), "urgent", 1, 1, "granted"),
            (OPEN, "urgent", 1, 0, "breaker"),
            (PROBING, "urgent", 1, 0, "breaker"),
            (replace(FULL, rest_until=after(2)), "urgent", 1, 0, "rest"),
            (replace(FULL, rest_until=after(-1)), "urgent", 1, 1, "granted"),
        ],
    )
    def test_what_is_granted(self, state: Project, lane: Any, wanted: int, count: int, why: str) -> None:
        """As much as the lane's tokens allow, or why nothing; a whole request is waited for if there is one to fill."""
        _, grant = rate_and_breaker.reserve(state, RULES, NOW, lane, wanted)
        assert (grant.count, grant.why) == (count, why)
        assert (grant.wait_s > 0) == (count == 0)

    def test_tokens_are_taken_from_the_own_lane(self) -> None:
        """The other lane keeps what it has."""
        state, _ = rate_and_breaker.reserve(FULL, RULES, NOW, "bulk", 60)
        assert (state.bulk_tokens, state.urgent_tokens) == (70.0, 130.0)

    @pytest.mark.parametrize(
        ("share", "wait_s", "count"), [(1, 1 / 6, 100), (0.5, 1 / 3, 100), (0.1, 1, 60), (0.01, 1, 6)]
    )
    def test_a_full_request_is_waited_for_up_to_a_second(self, share: float, wait_s: float, count: int) -> None:
        """A hundred missing at 600 a second take a sixth of a second; where the rate was halved often, less is sent."""
        slow = replace(EMPTY, rate_share=share)
        _, grant = rate_and_breaker.reserve(slow, RULES, NOW, "urgent", 1_000)
        assert grant.wait_s == pytest.approx(wait_s)
        later = NOW + timedelta(seconds=wait_s)
        _, grant = rate_and_breaker.reserve(
            replace(slow, filled_at=later, urgent_tokens=count), RULES, later, "urgent", 1_000
        )
        assert grant.count == count

    def test_no_limit(self) -> None:
        """Rate 0 grants everything, but neither a breaker nor a rest nor a brake is lifted by it."""
        free = replace(RULES, rate_per_s=0)
        assert rate_and_breaker.reserve(EMPTY, free, NOW, "bulk", 5_000)[1].count == 5_000
        for state in (OPEN, replace(FULL, rest_until=after(5))):
            assert rate_and_breaker.reserve(state, free, NOW, "bulk", 5)[1].count == 0

    @pytest.mark.parametrize("rate", [1, 7, 99])
    def test_a_rate_below_a_request_still_sends(self, rate: int) -> None:
        """A rate below a full request grants a second's worth."""
        slow = replace(RULES, rate_per_s=rate)
        state, grant = rate_and_breaker.reserve(replace(EMPTY, filled_at=NOW), slow, after(10), "bulk", 1_000)
        assert grant.count == rate
        assert state.bulk_tokens == pytest.approx(rate * 0.05)

    def test_over_a_second_never_more_than_the_rate_and_what_was_saved(self) -> None:
        """Both lanes, asked again and again for ten seconds, get the rate and at most what each saves up on top."""
        state, taken = FULL, 0
        for step in range(1_001):
            for lane in ("urgent", "bulk"):
                state, grant = rate_and_breaker.reserve(state, RULES, after(step / 100), lane, 1_000)
                taken += grant.count
        assert 600 * 10 - 2 * FULL.bulk_tokens <= taken <= 600 * 10 + 2 * FULL.bulk_tokens

    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
    def test_the_urgent_share_holds_while_both_lanes_are_full(self, share: float) -> None:
        """Each lane gets its share of the rate, no less."""
        rules, state = replace(RULES, urgent_share=share), EMPTY
        taken = {"urgent": 0, "bulk": 0}
        for step in range(2_001):
            for lane in taken:
                state, grant = rate_and_breaker.reserve(state, rules, after(step / 100), lane, 1_000)  # type: ignore[arg-type]
                taken[lane] += grant.count
        assert taken["urgent"] / sum(taken.values()) == pytest.approx(share, abs=0.03)

    @pytest.mark.parametrize("lane", ["urgent", "bulk"])
    def test_a_lane_alone_gets_the_whole_rate(self, lane: Any) -> None:
        """What overflows the idle lane runs into the other."""
        state, taken = EMPTY, 0
        for step in range(2_001):
            state, grant = rate_and_breaker.reserve(state, RULES, after(step / 100), lane, 1_000)
            taken += grant.count
        assert taken >= 600 * 20 * 0.95

    @pytest.mark.parametrize("rate", [600, 2_000, 10_000])
    def test_who_wakes_late_loses_nothing_of_the_rate(self, rate: int) -> None:
        """A worker that is told how long to wait, and comes some milliseconds later each time, still sends the rate."""
        rules, state, taken, at = replace(RULES, rate_per_s=rate), replace(EMPTY, urgent_tokens=10_000.0), 0, 0.0
        while at < 20:
            state, grant = rate_and_breaker.reserve(state, rules, after(at), "bulk", 1_000)
            taken += grant.count
            at += grant.wait_s + 0.02
        assert taken == pytest.approx(rate * 20, rel=0.01)


class TestGivingBack:
    """Tokens that were not used."""

    @pytest.mark.parametrize(
        ("level", "count", "expected"), [(0, 30, 30), (50, 30, 80), (120, 30, 130), (130, 30, 130)]
    )
    def test_up_to_the_brim(self, level: float, count: int, expected: float) -> None:
        """They are put back, but a lane never holds more than one request and a twentieth of a second's pushes."""
        state = rate_and_breaker.give_back(replace(EMPTY, bulk_tokens=float(level)), RULES, "bulk", count)
        assert (state.bulk_tokens, state.urgent_tokens) == (expected, 0.0)


class TestRefill:
    """Time that passes."""

    def test_a_clock_that_goes_back_gives_nothing_twice(self) -> None:
        """Neither tokens nor time are made of a step back."""
        state = rate_and_breaker.refill(EMPTY, RULES, after(-60))
        assert (state.urgent_tokens, state.bulk_tokens, state.filled_at) == (0.0, 0.0, NOW)

    def test_never_beyond_the_brim(self) -> None:
        """An hour fills both lanes, and no more."""
        state = rate_and_breaker.refill(EMPTY, RULES, after(3_600))
        assert (state.urgent_tokens, state.bulk_tokens) == (130.0, 130.0)

    @pytest.mark.parametrize(
        ("share", "seconds", "expected"),
        [(0.5, 0, 0.5), (0.5, 30, 0.6), (0.5, 150, 1.0), (0.01, 297, 1.0), (1.0, 60, 1.0)],
    )
    def test_the_rate_recovers_slowly(self, share: float, seconds: float, expected: float) -> None:
        """From nothing to its fullness within the recovery time."""
        assert rate_and_breaker.refill(
            replace(FULL, rate_share=share), RULES, after(seconds)
        ).rate_share == pytest.approx(expected)


class TestThrottle:
    """After a 429."""

    @pytest.mark.parametrize(("share", "expected"), [(1.0, 0.5), (0.5, 0.25), (0.015, 0.01), (0.01, 0.01)])
    def test_halves_down_to_a_floor(self, share: float, expected: float) -> None:
        """The rate is halved, but never to nothing, and the buckets are empty."""
        state = rate_and_breaker.throttle(replace(FULL, rate_share=share), NOW, 0)
        assert state.rate_share == pytest.approx(expected)
        assert (state.urgent_tokens, state.bulk_tokens) == (0.0, 0.0)

    @pytest.mark.parametrize(
        ("before", "retry_after_ms", "rests_s"),
        [(None, 0, 1), (None, 7_000, 7), (after(20), 7_000, 20), (after(-5), 500, 1)],
    )
    def test_rests_as_long_as_it_was_told(self, before: datetime | None, retry_after_ms: int, rests_s: float) -> None:
        """Retry-After is a floor, a longer rest stays, and a moment's rest there is always."""
        state = rate_and_breaker.throttle(replace(FULL, rest_until=before), NOW, retry_after_ms)
        assert state.rest_until == after(rests_s)


class TestBreaker:
    """Open, half-open, closed."""

    def test_a_credential_fault_of_the_project_opens_it_at_once(self) -> None:
        """With its reason and witness, and a first pause."""
        state = rate_and_breaker.fail(FULL, RULES, NOW, "UNAUTHORIZED", credential=True, by="receipt")
        assert (state.breaker, state.breaker_reason, state.breaker_by) == ("open", "UNAUTHORIZED", "receipt")
        assert (state.breaker_since, state.probe_at, state.trips) == (NOW, after(30), 1)

    def test_other_failures_open_it_when_they_are_no_accident(self) -> None:
        """The fifth in a row does, the fourth does not; something that goes well in between begins the count anew."""
        state = FULL
        for failures in range(1, 5):
            state = rate_and_breaker.fail(state, RULES, NOW, "503", credential=False, by="request")
            assert (state.breaker, state.failures) == ("closed", failures)
        assert rate_and_breaker.succeed(state, "request").failures == 0
        state = rate_and_breaker.fail(state, RULES, NOW, "503", credential=False, by="request")
        assert (state.breaker, state.failures) == ("open", 0)

    @pytest.mark.parametrize(("trips", "pause_s"), [(0, 30), (1, 60), (2, 120), (4, 480), (5, 900), (60, 900)])
    def test_pauses_double_up_to_a_cap(self, trips: int, pause_s: int) -> None:
        """Each trip without a success in between doubles the pause before the next probe."""
        state = rate_and_breaker.fail(replace(FULL, trips=trips), RULES, NOW, "x", credential=True, by="request")
        assert state.probe_at == after(pause_s)

    def test_late_failures_change_nothing(self) -> None:
        """What was under way when it opened neither prolongs nor restarts the pause."""
        assert rate_and_breaker.fail(OPEN, RULES, after(5), "late", credential=True, by="request") is OPEN

    def test_a_reason_that_is_empty_or_endless(self) -> None:
        """It is cut to what the row holds, and never empty."""
        assert rate_and_breaker.fail(FULL, RULES, NOW, "", credential=True, by="request").breaker_reason
        reason = rate_and_breaker.fail(FULL, RULES, NOW, "x" * 1_000, credential=True, by="request").breaker_reason
        assert reason == "x" * 300

    @pytest.mark.parametrize(("state", "wait_s"), [(OPEN, 60), (BY_RECEIPT, 1_860)], ids=["request", "receipt"])
    def test_one_probe_after_the_pause(self, state: Project, wait_s: int) -> None:
        """Exactly one push, in whichever lane asks first; the next only after the first should have been heard of."""
        still, refused = rate_and_breaker.reserve(state, RULES, after(29), "bulk", 100)
        assert (refused.count, refused.why, still.breaker) == (0, "breaker", "open")
        assert refused.wait_s == pytest.approx(1)
        probing, grant = rate_and_breaker.reserve(state, RULES, after(30), "urgent", 100)
        assert (grant.count, grant.probe, probing.breaker) == (1, True, "probing")
        _, second = rate_and_breaker.reserve(probing, RULES, after(31), "bulk", 100)
        assert (second.count, second.why) == (0, "breaker")
        assert second.wait_s == pytest.approx(wait_s - 1)
        _, third = rate_and_breaker.reserve(probing, RULES, after(30 + wait_s), "bulk", 100)
        assert (third.count, third.probe) == (1, True)

    def test_a_probe_that_found_nothing_to_send_is_spared(self) -> None:
        """The next one may go at once; a breaker that was closed or opened anew meanwhile stays as it is."""
        spared = rate_and_breaker.cancel_probe(PROBING, NOW)
        assert rate_and_breaker.reserve(spared, RULES, NOW, "bulk", 100)[1].probe
        assert rate_and_breaker.cancel_probe(FULL, NOW) is FULL
        assert rate_and_breaker.cancel_probe(OPEN, NOW) is OPEN

    @pytest.mark.parametrize(
        ("state", "by", "sent_at", "closes"),
        [
            (PROBING, "request", None, True),
            (OPEN, "request", None, False),
            (PROBING, "receipt", after(60), False),
            (replace(PROBING, breaker_by="receipt"), "request", None, False),
            (replace(PROBING, breaker_by="receipt"), "receipt", after(60), True),
            (replace(PROBING, breaker_by="receipt"), "receipt", NOW, False),
            (replace(PROBING, breaker_by="receipt"), "receipt", after(-60), False),
            (replace(PROBING, breaker_by="receipt"), "receipt", None, False),
            (BY_RECEIPT, "receipt", after(60), True),
        ],
    )
    def test_who_closes_it(self, state: Project, by: Any, sent_at: datetime | None, closes: bool) -> None:
        """A probe's answer closes what requests opened; what a receipt opened only the receipt of a newer push does."""
        assert (rate_and_breaker.succeed(state, by, sent_at).breaker == "closed") == closes

    def test_closing_ramps_up_and_forgets_its_trips_with_the_next_success(self) -> None:
        """A quarter of the rate at first, a lower one stays; a trip right after it pauses longer than the first did."""
        state = rate_and_breaker.close(PROBING)
        assert (state.breaker, state.breaker_reason, state.breaker_by, state.breaker_since, state.probe_at) == (
            "closed",
            None,
            None,
            None,
            None,
        )
        assert (state.rate_share, state.trips) == (0.25, 1)
        assert rate_and_breaker.close(replace(PROBING, rate_share=0.1)).rate_share == 0.1
        assert rate_and_breaker.fail(state, RULES, NOW, "again", credential=True, by="request").probe_at == after(60)
        assert rate_and_breaker.succeed(state, "request").trips == 0

    def test_a_success_without_trouble_is_no_news(self) -> None:
        """The row is not written for nothing."""
        assert rate_and_breaker.succeed(FULL, "request") is FULL


PHONES = [UUID(int=number) for number in range(300)]


def answers(faulty: int, fine: int = 0, first: int = 0) -> dict[UUID, bool]:
    """Make the answers of so many phones, faulty ones first, beginning with a certain one."""
    return {phone: place < faulty for place, phone in enumerate(PHONES[first : first + faulty + fine])}


def known(**changes: Any) -> Callable[[Sequence[UUID], Sequence[UUID]], Evidence]:
    """Know this of the phones: nobody has an owner, nobody worked before, and nobody was taken, unless said otherwise."""
    usual = {"owners": {}, "worked": (), "has_owners": False, "taken_lately": False, "ever_taken": False}
    return lambda _faulty, _fine: Evidence(**{"nobody_else": False} | usual | changes)


class TestCredentials:
    """Whose fault a credential fault is."""

    @pytest.mark.parametrize(
        ("owners", "worked", "more", "projects"),
        [
            (["ana"] * 50, 0, {}, False),
            (["ana"] * 50, 50, {}, False),
            (["ana"] * 48 + ["bea"] * 2, 0, {}, False),
            (["ana", "bea", "eva", "ana", "ana"], 0, {}, True),
            (["ana", "bea", "eva", "ana", "ana"], 0, {"taken_lately": True}, False),
            (["ana", "bea", "eva", "ana", "ana"], 5, {"taken_lately": True}, True),
            (["ana", "bea", "eva", "ana", "ana"], 2, {"taken_lately": True}, False),
            ([None] * 50, 0, {"has_owners": True}, False),
            ([None] * 50, 0, {}, True),
            ([None] * 50, 0, {"taken_lately": True}, False),
            ([None] * 50, 3, {"has_owners": True, "taken_lately": True}, True),
            (["ana"] * 50, 0, {"nobody_else": True}, True),
        ],
    )
    def test_owners_count_not_phones(
        self, owners: list[str | None], worked: int, more: dict[str, bool], projects: bool
    ) -> None:
        """One owner's phones, and phones without owner that never worked, are one witness; while somebody is taken, only
        owners whose phones worked before are believed."""
        heard = rate_and_breaker.hear(None, RULES, NOW, answers(len(owners)))
        assert heard is not None
        named = {phone: owner for phone, owner in zip(PHONES, owners, strict=False) if owner}
        look = known(**{"has_owners": bool(named)} | {"owners": named, "worked": PHONES[:worked]} | more)
        assert rate_and_breaker.is_projects_fault(heard, RULES, look) == projects

    @pytest.mark.parametrize(
        ("faulty", "fine", "projects"),
        [
            (["ana", "bea", "eva", "dan", "ana"], ["gil"], True),
            (["ana", "bea", "eva", "dan", "ana"], ["gil"] * 5, True),
            (["ana", "bea", "eva", "dan", "ana"], ["gil", "ida"], False),
            (["ana", "bea", "eva", "dan", "ana"], ["ana"] * 5, True),
        ],
    )
    def test_an_owner_with_several_good_phones_speaks_once(
        self, faulty: list[str], fine: list[str], projects: bool
    ) -> None:
        """However many phones of one owner are well, they speak once for the project, and not at all if one of them is not."""
        heard = rate_and_breaker.hear(None, RULES, NOW, answers(len(faulty), len(fine)))
        assert heard is not None
        look = known(has_owners=True, owners=dict(zip(PHONES, faulty + fine, strict=False)))
        assert rate_and_breaker.is_projects_fault(heard, RULES, look) == projects

    @pytest.mark.parametrize(
        ("faulty", "fine", "alone", "projects"),
        [
            (1, 0, False, False),
            (1, 0, True, True),
            (1, 1, True, False),
            (4, 0, False, False),
            (5, 0, False, True),
            (5, 1, False, True),
            (5, 2, False, False),
            (79, 21, False, False),
            (80, 20, False, True),
            (100, 0, False, True),
        ],
    )
    def test_when_it_is_the_projects(self, faulty: int, fine: int, alone: bool, projects: bool) -> None:
        """Four in five of those heard of, and at least five of them, or all there are."""
        heard = rate_and_breaker.hear(None, RULES, NOW, answers(faulty, fine))
        assert heard is not None
        assert rate_and_breaker.is_projects_fault(heard, RULES, known(nobody_else=alone)) == projects

    def test_nothing_is_kept_before_a_first_fault(self) -> None:
        """Good answers alone are no news, and need not be written down."""
        assert rate_and_breaker.hear(None, RULES, NOW, answers(0, 100)) is None

    def test_each_phone_counts_once_and_its_last_answer(self) -> None:
        """A phone that is told many things is one phone; one that is well again is no longer faulty."""
        heard = rate_and_breaker.hear(None, RULES, NOW, answers(3))
        heard = rate_and_breaker.hear(heard, RULES, NOW, answers(3))
        assert heard is not None
        assert list(heard.faulty.values()) == [True] * 3
        heard = rate_and_breaker.hear(heard, RULES, NOW, answers(0, 2))
        assert heard is not None
        assert sorted(heard.faulty.values()) == [False, False, True]

    def test_the_last_hundred_are_kept(self) -> None:
        """However many are heard of: a request's worth of faults replaces all that was good before."""
        heard = rate_and_breaker.hear(None, RULES, NOW, answers(1, 99))
        heard = rate_and_breaker.hear(heard, RULES, NOW, answers(100, 0, first=100))
        assert heard is not None
        assert list(heard.faulty) == PHONES[100:200]
        assert rate_and_breaker.is_projects_fault(heard, RULES, known())

    def test_a_phone_known_to_be_bad_is_no_news(self) -> None:
        """What it met before the breaker closed it may meet again: that counts neither for nor against the project."""
        before = Heard(NOW, dict.fromkeys(PHONES[:10]))
        heard = rate_and_breaker.hear(before, RULES, NOW, answers(10))
        assert heard == before
        assert not rate_and_breaker.is_projects_fault(heard, RULES, known(nobody_else=True))
        heard = rate_and_breaker.hear(before, RULES, NOW, answers(15))
        assert heard is not None
        assert rate_and_breaker.is_projects_fault(heard, RULES, known()), "five others met it as well"
        heard = rate_and_breaker.hear(before, RULES, NOW, answers(0, 10))
        assert heard is not None
        assert set(heard.faulty.values()) == {False}, "they are well again"

    @pytest.mark.parametrize(("seconds", "kept"), [(3_599, 2), (3_600, 1)])
    def test_what_is_old_is_forgotten(self, seconds: float, kept: int) -> None:
        """The window begins with the first fault."""
        heard = rate_and_breaker.hear(None, RULES, NOW, answers(1))
        later = rate_and_breaker.hear(heard, RULES, after(seconds), answers(1, 0, first=50))
        assert later is not None
        assert len(later.faulty) == kept
        assert rate_and_breaker.hear(heard, RULES, after(3_600), answers(0, 1)) is None


class TestRefusals:
    """Who is to blame for a message that was refused alone."""

    @pytest.mark.parametrize(
        ("known", "state", "bad"),
        [
            (None, FULL, False),
            (Refusal(NOW, taken_since=False, own_taken=False), FULL, False),
            (Refusal(NOW, taken_since=True, own_taken=False), FULL, True),
            (Refusal(NOW, taken_since=True, own_taken=True), FULL, True),
            (Refusal(NOW, taken_since=True, own_taken=False), replace(FULL, failures=2), True),
            (Refusal(NOW, taken_since=True, own_taken=False), replace(FULL, failures=3), False),
            (Refusal(NOW, taken_since=True, own_taken=False), OPEN, False),
            (Refusal(NOW, taken_since=True, own_taken=False), PROBING, False),
        ],
    )
    def test_refused_taken_refused(self, known: Refusal | None, state: Project, bad: bool) -> None:
        """The message, if another was taken between two refusals of its event, and not many events are refused."""
        assert rate_and_breaker.judge(known, state, NOW).is_bad == bad

    def test_how_long(self) -> None:
        """Since the first refusal of its event."""
        assert rate_and_breaker.judge(None, FULL, NOW).since_s == 0
        assert rate_and_breaker.judge(Refusal(NOW, taken_since=False, own_taken=False), FULL, after(90)).since_s == 90


@pytest.mark.parametrize(
    ("answers", "unregistered", "abnormal"),
    [
        (0, 0, False),
        (49, 49, False),
        (100, 49, False),
        (50, 50, True),
        (249, 50, True),
        (250, 50, False),
        (251, 51, True),
        (1_000, 200, False),
        (1_000, 201, True),
        (100_000, 51, False),
    ],
)
def test_the_brake_on_pruning(answers: int, unregistered: int, abnormal: bool) -> None:
    """At least fifty, and more than a fifth of the answers."""
    assert rate_and_breaker.is_abnormal(answers, unregistered, unregistered, RULES) == abnormal
    assert not rate_and_breaker.is_abnormal(answers, unregistered, 1, RULES), "one owner is no reason to doubt"


@pytest.mark.parametrize(
    ("connections", "under_way", "latency_ms", "lease_ms", "expected"),
    [
        (6, 0, 250, 60_000, 600),
        (2, 0, 250, 60_000, 200),
        (6, 0, 5_000, 60_000, 600),
        (6, 20, 5_000, 60_000, 400),
        (6, 24, 5_000, 60_000, 100),
        (6, 100, 5_000, 60_000, 100),
        (6, 0, 60_000, 60_000, 200),
        (1, 0, 60_000, 60_000, 100),
        (6, 0, 0, 60_000, 600),
    ],
)
def test_the_size_of_a_batch(connections: int, under_way: int, latency_ms: float, lease_ms: int, expected: int) -> None:
    """No more than is sent within a third of its lease behind what stands in line, and at least one request."""
    limit = rate_and_breaker.claim_limit(
        most=1_000, chunk=100, connections=connections, under_way=under_way, latency_ms=latency_ms, lease_ms=lease_ms
    )
    assert limit == expected


def test_a_batch_is_never_larger_than_asked_for() -> None:
    """OUTBOX_BATCH_SIZE is the most, even below one request."""
    assert (
        rate_and_breaker.claim_limit(most=30, chunk=100, connections=6, under_way=0, latency_ms=1, lease_ms=60_000)
        == 30
    )
