"""Mistakes in what decides, in Python."""

from __future__ import annotations

from mutants.mistake import Mistake

_OUTCOMES = "server/relevo/delivery/settling/outcomes.py"
_RATE = "server/relevo/delivery/projects/rate_and_breaker.py"
_PHONES = "server/relevo/access/phones.py"

IN_PYTHON: dict[str, Mistake] = {
    "unseen-answer-once-tried-again": Mistake(
        "at most once is rather none than two",
        _OUTCOMES,
        '"unknown" if delivery.at_most_once else "retryable"',
        '"retryable" if delivery.at_most_once else "retryable"',
        ("tests/delivery/sending/test_in_flight_hung.py", "tests/scenarios/push_errors/test_failure_modes.py"),
    ),
    "deadline-skipped": Mistake(
        "a push whose deadline passed is expired",
        _OUTCOMES,
        '"deadline_passed": "expired"',
        '"deadline_passed": "skipped"',
        ("tests/delivery/settling/test_replies.py", "tests/scenarios/push_errors/test_failure_modes.py"),
    ),
    "unsent-costs-an-attempt": Mistake(
        "what was certainly not sent costs no attempt",
        _OUTCOMES,
        "return said._replace(attempted=False, retry_after_ms=pause_ms, not_before=reply.not_before)",
        "return said._replace(attempted=True, retry_after_ms=pause_ms, not_before=reply.not_before)",
        ("tests/delivery/settling/test_replies.py", "tests/scenarios/push_errors/test_failure_modes.py"),
    ),
    "bucket-overflows": Mistake(
        "tokens of a rate do not pile up",
        _RATE,
        "urgent_tokens=min(urgent, full),",
        "urgent_tokens=urgent,",
        ("tests/delivery/projects/test_rate_and_breaker.py",),
    ),
    "rest-not-kept": Mistake(
        "a rest that a push service asked for is kept",
        _RATE,
        "if state.rest_until is not None and state.rest_until > now:",
        "if False:",
        ("tests/delivery/projects/test_rate_and_breaker.py",),
    ),
    "secret-outweighs-signature": Mistake(
        "a signature that names no owner does not speak for an owner's phone",
        _PHONES,
        "if proven.by_signature and proven.by_app is None and",
        "if proven.by_signature and not proven.by_secret and proven.by_app is None and",
        (
            "tests/http/test_installations_signatures.py",
            "tests/http/test_installations_proof_first.py",
            "tests/http/test_installations.py",
        ),
    ),
    "token-leaves-its-project": Mistake(
        "a token stays in its project",
        _PHONES,
        "if holder.project != asked.project:",
        "if False:",
        ("tests/http/test_installations_signatures.py", "tests/http/test_installations.py"),
    ),
    "webhook-of-another-project": Mistake(
        "a webhook of one project gets nothing of another",
        "server/relevo/providers/webhook/provider.py",
        "if address.project not in (None, of_project):",
        "if False:",
        ("tests/providers/test_webhook.py",),
    ),
    "two-violations": Mistake(
        "FCM blames the token only if every violation it names is the token's",
        "server/relevo/providers/fcm/provider.py",
        'return all(field in ("message.token", "message.fid") for field in fields)',
        'return any(field in ("message.token", "message.fid") for field in fields)',
        ("tests/providers/test_fcm.py",),
    ),
    "half-of-the-receipts": Mistake(
        "both halves of a question for receipts are asked",
        "server/relevo/cycles/receipt.py",
        "return _joined(self._fetch(claim, ticket_ids[:half]), self._fetch(claim, ticket_ids[half:]))",
        "return _joined(self._fetch(claim, ticket_ids[:half]), self._fetch(claim, ticket_ids[:half]))",
        ("tests/cycles/receipt/test_failed_questions.py", "tests/cycles/receipt/test_receipts.py"),
    ),
    "pause-silences-lateness": Mistake(
        "only a paused dispatch explains deliveries that are late",
        "server/relevo/operators/health/sending.py",
        'if any(row["cycle"] == "dispatch" and row["paused_reason"] for row in seen.cycles):',
        'if any(row["paused_reason"] for row in seen.cycles):',
        ("tests/operators/test_health.py",),
    ),
    "viewer-forgets": Mistake(
        "a viewer changes nothing",
        "server/relevo/http/rules.py",
        '"/v1/owners/forget": {"POST": APP},',
        '"/v1/owners/forget": {"POST": READ},',
        ("tests/http/test_rules_principles.py",),
    ),
    "long-reason-keeps-a-token": Mistake(
        "a token that is gone is disabled however long the push service's code is",
        "server/relevo/delivery/claiming/settle.py",
        '(a.error_code or "invalid")[:100]',
        '(a.error_code or "invalid")',
        ("tests/delivery/claiming/test_settle_states.py", "-k", "however_long"),
    ),
    "stopped-server-stays-connected": Mistake(
        "a server that stopped holds no connection to the database",
        "server/relevo/http/server.py",
        "for each in (threads, probes):",
        "for each in (threads,):",
        ("tests/http/test_health.py", "-k", "stopped"),
    ),
    "fetched-by-way-of-a-small-disk": Mistake(
        "what is fetched from the archive is written beside where it lands",
        "server/relevo/archive/restore.py",
        'prefix=".fetching-", dir=path.parent)',
        'prefix=".fetching-")',
        ("tests/archive/test_restore.py", "-k", "fetched"),
    ),
}
