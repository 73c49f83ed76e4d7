"""Mistakes that random samples showed unnoticed: a function chosen by chance, and the likeliest small mistake in it."""

from __future__ import annotations

from mutants.mistake import Mistake

SAMPLED: dict[str, Mistake] = {
    "unclear-handed-in-as-unsent": Mistake(
        "an unclear answer that nobody waits for leaves its request unanswered",
        "server/relevo/delivery/recorder.py",
        'if reply.kind not in ("answered", "unclear"):',
        'if reply.kind != "answered":',
        ("tests/dispatch/test_hung_requests.py", "-k", "stops_leaves"),
    ),
    "lease-for-no-request": Mistake(
        "a request begins only if its connection is leased for as long as it may take",
        "server/relevo/delivery/connection_leases.py",
        "time.monotonic() + needed_ms / 1000 <= self.since",
        "time.monotonic() <= self.since",
        ("tests/dispatch/test_connections.py", "-k", "lasts_for_the_whole"),
    ),
    "newer-access-token-dropped": Mistake(
        "a late refusal of an access token drops no newer one",
        "server/relevo/providers/fcm_tokens.py",
        "if account.token is not None and account.token.text == text:",
        "if account.token is not None:",
        ("tests/providers/test_fcm.py", "-k", "late_refusal"),
    ),
    "look-soon-forgotten": Mistake(
        "a round that fails while the database comes back is soon tried again",
        "server/relevo/runtime/scheduler.py",
        "clock.again = clock.running",
        "clock.again = False",
        ("tests/runtime/test_pacing.py", "-k", "comes_back"),
    ),
    "look-soon-of-the-last-round": Mistake(
        "the next failure waits its pause",
        "server/relevo/runtime/scheduler.py",
        "clock.running, clock.again = True, False",
        "clock.running = True",
        ("tests/runtime/test_pacing.py", "-k", "comes_back"),
    ),
    "locked-reported-late": Mistake(
        "what is locked is reported from the third time on",
        "server/relevo/runtime/troubles.py",
        "trouble.failures >= _REPORTED_FROM",
        "trouble.failures > _REPORTED_FROM",
        ("tests/dispatch/test_contained.py", "-k", "third_time"),
    ),
    "readable-file-stays-rejected": Mistake(
        "the reject of an unreadable file is resolved once the file can be read",
        "server/relevo/sources/folder.py",
        '        if before.get("unreadable"):\n            self.resolved.append(name)\n',
        "",
        ("tests/sources/test_folder.py", "-k", "becomes_readable"),
    ),
}
