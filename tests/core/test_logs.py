"""Logs: one clean line each, and nothing secret in them."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import structlog

from relevo.core import logs
from relevo.core.errors import RelevoError


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    """Give a stream to log to, and put logging back afterwards."""
    root, quiet = logging.getLogger(), [logging.getLogger(name) for name in logs._QUIET]
    before, levels = list(root.handlers), [each.level for each in (root, *quiet)]
    yield io.StringIO()
    structlog.reset_defaults()
    root.handlers[:] = before
    for logger, level in zip((root, *quiet), levels, strict=True):
        logger.setLevel(level)


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    """Return the JSON lines logged so far."""
    return [json.loads(line) for line in out.getvalue().splitlines()]


def fail(message: str) -> None:
    """Raise."""
    raise ValueError(message)


def redacted(**event: object) -> dict[str, Any]:
    """Return the event as the processor leaves it."""
    return dict(logs.redact(None, "info", event))


class TestScrub:
    """Secrets inside texts."""

    @pytest.mark.parametrize(
        ("text", "clean"),
        [
            ("to postgresql://u:hunter2@h/d now", "to postgresql://u:***@h/d now"),
            ("postgresql://u:hunter2@hunter2@h/d", "postgresql://u:***@h/d"),
            ("postgresql://u:hun/hunter2@h/d", "postgresql://u:***@h/d"),
            ("https://exp.host/--/api/v2/push/send", "https://exp.host/--/api/v2/push/send"),
            ("http://localhost:8080/x", "http://localhost:8080/x"),
            ('connection to "host=h password=hunter2" failed', 'connection to "host=h password=*** failed'),
            ("GET /v1?ticket=hunter2&fecha=1", "GET /v1?ticket=***&fecha=1"),
            ("{'password': 'hunter2', 'a': 1}", "{'password': '***', 'a': 1}"),
            ('{"client_secret": "hunter2"}', '{"client_secret": "***"}'),
            ("Authorization: Bearer hunter2", "Authorization: Bearer ***"),
            ("access_token=hunter2", "access_token=***"),
            ("no ExponentPushToken[abcdhunter2] left", "no ExponentPushToken[abcd…] left"),
            ("ExpoPushToken[abcdhunter2]", "ExpoPushToken[abcd…]"),
            ("?to=ExponentPushToken%5Babcdhunter2%5D&x", "?to=ExponentPushToken[abcd…]&x"),
            ("cut off: ExponentPushToken[abcdhunter2", "cut off: ExponentPushToken[abcd…]"),
            ("must look like ExponentPushToken[...] or a UUID", "must look like ExponentPushToken[...] or a UUID"),
            ("password authentication failed", "password authentication failed"),
            ("provider_ticket_id=abc", "provider_ticket_id=abc"),
            ("a\x00b\x1b[31mc\nd", "a b [31mc\nd"),
            ("GET https://h/x?api_key=hunter2&page=2", "GET https://h/x?api_key=***&page=2"),
            ("api_key=hunter2, retrying", "api_key=*** retrying"),
            ("apikey=hunter2", "apikey=***"),
            ('{"apiKey": "hunter2", "page": 2}', '{"apiKey": "***", "page": 2}'),
            ("token=hunter2", "token=***"),
            ("GET /v1?token=hunter2&fecha=1", "GET /v1?token=***&fecha=1"),
            ("GET /v1?page=1&subscription-key=hunter2", "GET /v1?page=1&subscription-key=***"),
            ("GET /blob?sv=1&sig=hunter2", "GET /blob?sv=1&sig=***"),
            ("GET /x?pwd=hunter2&pass=hunter2", "GET /x?pwd=***&pass=***"),
            ("the secret whsec_aHVudGVyMg== is short", "the secret whsec_*** is short"),
            ('{"refresh_token": "hunter2"}', '{"refresh_token": "***"}'),
            (
                "PUT /b/k?X-Amz-Date=1&X-Amz-Credential=hunter2%2Fs3&X-Amz-Security-Token=hunter2&X-Amz-Signature=hunter2",
                "PUT /b/k?X-Amz-Date=1&X-Amz-Credential=***&X-Amz-Security-Token=***&X-Amz-Signature=***",
            ),
            ("X-Amz-Signature=hunter2", "X-Amz-Signature=***"),
            ("Authorization: Basic aHVudGVyMg==", "Authorization: Basic ***"),
            ("{'Authorization': 'Basic aHVudGVyMg=='}", "{'Authorization': 'Basic ***'}"),
            ("Proxy-Authorization: hunter2", "Proxy-Authorization: ***"),
            ("authorization=hunter2", "authorization=***"),
            ("X-Api-Key: hunter2", "X-Api-Key: ***"),
            (
                "Authorization: AWS4-HMAC-SHA256 Credential=hunter2/s3, SignedHeaders=host, Signature=hunter2",
                "Authorization: AWS4-HMAC-SHA256 *** SignedHeaders=host, Signature=***",
            ),
            ("clone https://hunter2@git.example/x", "clone https://***@git.example/x"),
            ("https://hunter2:x-oauth-basic@git.example/x", "https://***@git.example/x"),
            ("proxy http://me:hunter2@proxy:3128 refused", "proxy http://***@proxy:3128 refused"),
            ("postgresql://relevo@db.example/app", "postgresql://relevo@db.example/app"),
            ("token=ExponentPushToken[abcdhunter2]", "token=ExponentPushToken[abcd…]"),
            ("push_token='ExponentPushToken[abcdhunter2]'", "push_token='ExponentPushToken[abcd…]'"),
            ('{"token": "ExponentPushToken[abcdhunter2]"}', '{"token": "ExponentPushToken[abcd…]"}'),
            ("?token=ExponentPushToken%5Babcdhunter2%5D&x=1", "?token=ExponentPushToken[abcd…]&x=1"),
            (
                'gone: {"endpoint":"https://a.b:8/hunter2?hunter2","keys":{"p256dh":"Bhunter2_-","auth":"hunter2-_A"}}',
                'gone: {"endpoint":"https://a.b:8/…","keys":{"p256dh":"***","auth":"***"}}',
            ),
            (
                r'"{\"endpoint\": \"https://a.b/hunter2\", \"keys\": {\"auth\": \"hunter2\"}}"',
                r'"{\"endpoint\": \"https://a.b/…\", \"keys\": {\"auth\": \"***\"}}"',
            ),
            ("at {'endpoint': 'https://a.b/hunter2'}", "at {'endpoint': 'https://a.b/…'}"),
            (
                "POST https://fcm.googleapis.com/fcm/send/hunter2 failed",
                "POST https://fcm.googleapis.com/fcm/send/… failed",
            ),
            ("to https://web.push.apple.com/hunter2: 403", "to https://web.push.apple.com/… 403"),
            ("GET https://fcm.googleapis.com/v1/projects/a", "GET https://fcm.googleapis.com/v1/projects/a"),
            ("to cX3-xx_Y:APA91b-hunter2_x now", "to cX3-… now"),
            ("/3/device/abcd0123456789abcdef refused", "/3/device/abcd… refused"),
            ("tokens_disabled=3 token_version=2 tokens=1.5", "tokens_disabled=3 token_version=2 tokens=1.5"),
            ('{"tokens_disabled": 3, "token_version": 2}', '{"tokens_disabled": 3, "token_version": 2}'),
            ("event key=order-17 was enqueued", "event key=order-17 was enqueued"),
            ("the token is invalid; signature expected", "the token is invalid; signature expected"),
            ("Basic authentication is not enough", "Basic authentication is not enough"),
            ("Key (event_type, event_key)=(a, b) exists", "Key (event_type, event_key)=(a, b) exists"),
            ("see https://h/path@2x.png and mail me@h", "see https://h/path@2x.png and mail me@h"),
        ],
    )
    def test_what_is_hidden_and_what_stays(self, text: str, clean: str) -> None:
        """Secrets go, the rest of the sentence stays, and scrubbing twice changes nothing more."""
        assert logs.scrub(text) == clean
        assert logs.scrub(clean) == clean

    def test_hostile_text_costs_little(self) -> None:
        """A long text made to slow the patterns down is dealt with."""
        assert "hunter2" not in redacted(text="://a:" * 100_000 + "password='" * 1_000 + "hunter2")["text"]
        for piece in ("x-", "token", "://", "authorization:", "api_", "?key", "-" * 9):
            began = time.process_time()
            redacted(text=piece * 100_000)
            redacted(exception=piece * 100_000)
            assert time.process_time() - began < 2.0, piece


class TestRedact:
    """Secrets inside events."""

    def test_keys_that_tell(self) -> None:
        """A value under a telling name is hidden at any depth, whatever it is."""
        event = redacted(
            db_password="hunter2",
            CLIENT_SECRET=b"hunter2",
            expo_access_token=["hunter2"],
            chilecompra_ticket="hunter2",
            request={"headers": {"Authorization": "hunter2"}},
            api_key="hunter2",
            token="hunter2",
            refresh_token=["hunter2"],
            signature="hunter2",
            user_password=471_147,
        )
        assert "hunter2" not in str(event)
        assert "471147" not in str(event)
        assert event["request"] == {"headers": {"Authorization": "***"}}

    def test_keys_that_do_not(self) -> None:
        """Ticket ids, counts and unset values stay readable."""
        event = {
            "provider_ticket_id": "XX-1",
            "ticket_ids": ["XX-1"],
            "late_tickets": 3,
            "password": None,
            "tokens_disabled": 3,
            "token_version": 2,
            "tokens": ["a"],
            "event_key": "order-17",
        }
        assert redacted(**event) == event
        assert redacted(token="ExponentPushToken[abcdefgh]") == {"token": "ExponentPushToken[abcd…]"}

    def test_values_at_any_depth(self) -> None:
        """Texts are scrubbed inside lists, tuples, sets, mappings, keys and exceptions."""
        secret = "postgresql://u:hunter2@h/d"
        event = redacted(a=[(secret,)], b={secret: {"c": {secret}}}, d=ValueError(secret), event=secret)
        assert "hunter2" not in str(event)
        assert event["d"] == "ValueError: postgresql://u:***@h/d"

    def test_objects_become_plain(self) -> None:
        """What JSON does not know is written as text, so that nothing hides in a repr."""
        day, number = datetime(2024, 5, 1, tzinfo=UTC), UUID(int=7)
        event = redacted(day=day, number=number, odd=float("nan"), fine=1.5, yes=True)
        assert event == {
            "day": "2024-05-01T00:00:00+00:00",
            "number": str(number),
            "odd": "nan",
            "fine": 1.5,
            "yes": True,
        }

    def test_texts_are_bounded(self) -> None:
        """No text is longer than 2,000 characters, and one that was cut shows it."""
        text = redacted(text="x" * 5_000)["text"]
        assert len(text) == 2_000
        assert text.endswith("…")

    def test_cycles_end(self) -> None:
        """A structure that holds itself is logged and does not hang or raise."""
        loop: list[object] = []
        loop.append(loop)
        assert "…" in str(redacted(loop=loop))


class TestNormaliseError:
    """Errors as one line for worker_runs."""

    def test_one_scrubbed_line(self) -> None:
        """The type and its message, on one line, without secrets."""
        error = ValueError("bad\n  DETAIL:  Key (dsn)=(x)\n password=hunter2")
        assert logs.normalise_error(error) == "ValueError: bad DETAIL: Key (dsn)=(x) password=***"

    def test_bounded(self) -> None:
        """Never longer than asked for, the name included."""
        assert len(logs.normalise_error(ValueError("x" * 100_000))) == 500
        assert len(logs.normalise_error(RelevoError("x" * 9_000), limit=50)) == 50

    def test_nothing_said(self) -> None:
        """An error without a message is its name."""
        assert logs.normalise_error(TimeoutError()) == "TimeoutError"

    def test_our_own_errors_speak_for_themselves(self) -> None:
        """A Relevo error is its sentence and its next step."""
        error = RelevoError("The server is gone.", hint="Start it.")
        assert logs.normalise_error(error) == "The server is gone. Start it."

    def test_storable_in_postgresql(self) -> None:
        """No NUL and no lone surrogate, which a text column refuses."""
        assert logs.normalise_error(ValueError("a\x00b\ud800c")) == "ValueError: a b?c"


class TestConfigure:
    """The whole chain, from a logger to the stream."""

    def test_json_lines(self, out: io.StringIO) -> None:
        """A line starts with time (UTC), level and event, and carries the context variables."""
        logs.configure("info", "json", out)
        with structlog.contextvars.bound_contextvars(run_id=7):
            structlog.get_logger().info("run_finished", counts={"sent": 2}, dsn="postgresql://u:hunter2@h/d")
        [line] = lines(out)
        assert list(line)[:3] == ["ts", "level", "event"]
        assert datetime.fromisoformat(line.pop("ts")).utcoffset() == datetime.now(UTC).utcoffset()
        assert line == {
            "level": "info",
            "event": "run_finished",
            "run_id": 7,
            "counts": {"sent": 2},
            "dsn": "postgresql://u:***@h/d",
        }

    def test_the_standard_library_too(self, out: io.StringIO) -> None:
        """Lines of other libraries look the same, scrubbed, with the logger's name and the context."""
        logs.configure("info", "json", out)
        with structlog.contextvars.bound_contextvars(run_id=7):
            logging.getLogger("some.library").warning("lost %s", "postgresql://u:hunter2@h/d")
        [line] = lines(out)
        assert line.pop("ts")
        assert line == {
            "level": "warning",
            "event": "lost postgresql://u:***@h/d",
            "logger": "some.library",
            "run_id": 7,
        }

    @pytest.mark.parametrize("fmt", ["json", "console"])
    @pytest.mark.parametrize("which", ["structlog", "logging"])
    def test_exceptions_are_scrubbed_and_bounded(self, out: io.StringIO, fmt: Any, which: str) -> None:
        """A traceback keeps its last line, loses its secrets and cannot fill the disk."""
        logs.configure("info", fmt, out)
        logger = structlog.get_logger() if which == "structlog" else logging.getLogger("some.library")
        ending = " password=hunter2 at the end"  # not where it is raised: a traceback shows that line
        try:
            fail("x" * 50_000 + ending)
        except ValueError:
            logger.exception("run_failed")
        text = out.getvalue()
        assert "Traceback" in text
        assert "password=*** at the end" in text
        assert "hunter2" not in text
        assert len(text) < 2_500

    def test_levels(self, out: io.StringIO) -> None:
        """Lines below the level are not written, whoever logs them; of chatty libraries only errors are."""
        logs.configure("info", "json", out)
        structlog.get_logger().debug("no")
        logging.getLogger("some.library").debug("no")
        logging.getLogger("apscheduler.scheduler").info("no")
        logging.getLogger("psycopg.pool").warning("no")
        logging.getLogger("psycopg.pool").error("yes")
        assert [line["event"] for line in lines(out)] == ["yes"]

    def test_a_strict_level_holds_for_libraries_too(self, out: io.StringIO) -> None:
        """At level error, warnings of the quietened libraries are not written either."""
        logs.configure("error", "json", out)
        logging.getLogger("apscheduler").warning("no")
        structlog.get_logger().warning("no")
        structlog.get_logger().error("yes")
        assert [line["event"] for line in lines(out)] == ["yes"]

    def test_configuring_again_replaces(self, out: io.StringIO) -> None:
        """The last configuration counts, and no line is written twice."""
        logs.configure("info", "json", io.StringIO())
        logs.configure("debug", "json", out)
        structlog.get_logger().debug("once")
        assert [line["event"] for line in lines(out)] == ["once"]

    def test_console_has_colours_on_a_terminal_only(self, out: io.StringIO) -> None:
        """Escape codes reach a terminal and never a file."""
        logs.configure("info", "console", out)
        structlog.get_logger().info("run_finished", sent=2)
        assert "run_finished" in out.getvalue()
        assert "sent=2" in out.getvalue()
        assert "\x1b" not in out.getvalue()

        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        logs.configure("info", "console", terminal := Terminal())
        structlog.get_logger().info("run_finished")
        assert "\x1b" in terminal.getvalue()

    @pytest.mark.usefixtures("out")
    def test_stderr_is_the_default(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Logs leave standard output to the commands."""
        logs.configure("info", "json")
        structlog.get_logger().info("hello")
        reported = capsys.readouterr()
        assert "hello" in reported.err
        assert reported.out == ""


def test_a_warning_is_logged_though_nothing_was_loaded_for_it(
    out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that only look set up their log when there is a line: ours and others' are written, and scrubbed."""
    monkeypatch.setattr("sys.stderr", out)
    logs.configure_later("warning", "json")
    logging.getLogger("someone").warning("password=hunter2")
    logs.get_logger("relevo.database.pool").warning("database_unreachable", detail="gone")
    logs.get_logger("relevo.database.pool").info("too_fine")
    assert [line["event"] for line in lines(out)] == ["password=***", "database_unreachable"]
