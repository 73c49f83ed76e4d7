"""An S3 service that is slow, busy, silent or lies, over HTTP: nothing is dropped that was not verified, each says why."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from relevo.archive import restore
from support.old_months import add_old_deliveries, clean_up, export, export_later, exports, month_ago, open_store
from support.s3_proxy import Asked, Between, Forward, Given, changed, flipped

OLD = month_ago(5)
NAME = ("notification_deliveries", f"{OLD:%Y-%m}")
ROWS = 300
_REFUSAL = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}, said the test</Message></Error>"


@pytest.fixture
def between(s3) -> Iterator[Between]:
    """A proxy in front of the S3 server."""
    with Between(s3.endpoint) as running:
        yield running


@pytest.fixture
def retired(build, conn, s3_settings, between) -> Any:
    """A month of ROWS deliveries in three parts, retired (see `retired_template`), and an app that exports it by the proxy."""
    return build(archive_part_rows=100, **s3_settings | {"archive_endpoint": between.endpoint})


def refusal(status: int, code: str) -> Given:
    """Return an answer as S3 refuses."""
    return Given(status, [("Content-Type", "application/xml")], _REFUSAL.format(code=code).encode())


def cut_short(asked: Asked, forward: Forward) -> Given:
    """Break the connection in the middle of a part."""
    given = forward(asked)
    if not asked.is_download:
        return given
    return Given(given.status, given.headers, given.body[: len(given.body) // 2], promised=len(given.body))


def flip_downloads(asked: Asked, forward: Forward) -> Given:
    """Hand out a part with one byte changed."""
    given = forward(asked)
    return Given(given.status, given.headers, flipped(given.body)) if asked.is_download else given


def flip_uploads(asked: Asked, forward: Forward) -> Given:
    """Change a byte of a part on its way to the service."""
    return forward(changed(asked, flipped(asked.body)) if asked.is_upload else asked)


def always_busy(_asked: Asked, _forward: Forward) -> Given:
    """Ask everybody to come back later."""
    return refusal(503, "SlowDown")


def silent(_asked: Asked, _forward: Forward) -> Given | None:
    """Never answer; hang up when the client is long gone."""
    threading.Event().wait(1)
    return None


def still_there(conn) -> bool:
    """Tell whether every row of the month is in the database."""
    found = conn.execute(f"select count(*) from relevo_archive.notification_deliveries_{OLD:%Y_%m}").fetchone()
    return found == (ROWS,)


def state_and_mismatches(conn) -> Any:
    """Return how far the month is, and how often the store held something else."""
    asked = "select state, mismatches from relevo.archive_exports where entity = 'notification_deliveries'"
    return conn.execute(asked).fetchone()


TROUBLES = [
    (silent, "failed", "did not answer", ("retired", 0)),
    (always_busy, "failed", "SlowDown", ("retired", 0)),
    (flip_uploads, "partial", "refused", ("retired", 0)),
    (cut_short, "partial", "cut short", ("exported", 0)),
    (flip_downloads, "partial", "is not the file that was uploaded", ("retired", 2)),
]
"""What a service does, one after the other, what the run and its error say, and how far the month is then."""


def test_a_service_in_trouble_is_named_and_nothing_is_dropped(build, retired, conn, s3_settings, between) -> None:
    """The run says what the service did, every row stays, and once it works the month is verified and can be dropped."""
    hasty = build(
        archive_part_rows=100, **s3_settings | {"archive_endpoint": between.endpoint, "archive_timeout_ms": 400}
    )
    for trouble, outcome, said, left in TROUBLES:
        between.trouble = trouble
        report = export(hasty if trouble is silent else retired)
        assert report.outcome == outcome, (trouble, report)
        assert said in report.error, trouble
        assert state_and_mismatches(conn) == left, trouble
        assert still_there(conn), trouble
    between.trouble = None
    assert export(retired).outcome == "ok"
    assert state_and_mismatches(conn) == ("verified", 2)
    export_later(retired, 30)
    assert exports(conn)[NAME] == "dropped"
    restored = restore.read_manifest(open_store(**s3_settings), *("notification_deliveries", OLD))
    restore.verify(open_store(**s3_settings), restored)
    assert restored.rows == ROWS


def test_a_service_that_stores_something_else_is_found_out(retired, conn, s3, s3_settings, between) -> None:
    """It says that all is well and keeps other bytes: reading back finds it, and the part is uploaded again."""
    lied: list[str] = []

    def lie_once(asked: Asked, forward: Forward) -> Given:
        given = forward(asked)
        if asked.is_upload and "part-00002" in asked.path and not lied:
            lied.append(asked.path)
            key = asked.path.split("/", 2)[2].replace("%3D", "=").split("?")[0]
            s3.client().put_object(Bucket=s3_settings["archive_bucket"], Key=key, Body=flipped(asked.body))
        return given

    between.trouble = lie_once
    report = export(retired)
    assert lied
    assert report.outcome == "partial"
    assert "part-00002.parquet is not the file that was uploaded" in report.error
    assert state_and_mismatches(conn) == ("verified", 1)
    reported = restore.read_manifest(open_store(**s3_settings), "notification_deliveries", OLD)
    restore.verify(open_store(**s3_settings), reported)


def test_a_service_that_heeds_no_condition_overwrites_nobody(retired, conn, s3, s3_settings, between) -> None:
    """It takes every PUT, whatever If-None-Match asks: another database's month is looked at first, and stays."""

    def heedless(asked: Asked, forward: Forward) -> Given:
        if asked.method != "PUT" or "If-None-Match" not in asked.headers:
            return forward(asked)
        key = unquote(urlsplit(asked.path).path).split("/", 2)[2]
        s3.client().put_object(Bucket=s3_settings["archive_bucket"], Key=key, Body=asked.body)
        return Given(200, [("ETag", '"x"')])

    def objects() -> dict[str, bytes]:
        client, bucket = s3.client(), s3_settings["archive_bucket"]
        found = client.list_objects_v2(Bucket=bucket)["Contents"]
        return {
            each["Key"]: client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()
            for each in found
            if "notification_deliveries" in each["Key"]
        }

    assert export(retired).outcome == "ok"
    before = objects()
    conn.execute("truncate relevo.archive_exports cascade")
    conn.execute("drop schema relevo_archive cascade")
    conn.execute("create schema relevo_archive")
    add_old_deliveries(conn, OLD, 50)
    assert clean_up(retired).outcome == "ok"
    between.trouble = heedless
    assert "belongs to another database" in export(retired).error
    assert objects() == before


def test_an_object_in_cold_storage_holds_up_no_other_month(retired, conn, between) -> None:
    """A lifecycle rule took one month's parts to where they cannot be read: it stays, says why, and the others go on."""
    older = month_ago(6)
    add_old_deliveries(conn, older, 20)
    assert clean_up(retired).outcome == "ok"
    assert export(retired).outcome == "ok"

    def cold(asked: Asked, forward: Forward) -> Given:
        if asked.is_download and f"month%3D{older:%m}" in asked.path.replace("=", "%3D"):
            return refusal(403, "InvalidObjectState")
        return forward(asked)

    between.trouble = cold
    export_later(retired, 30)
    assert exports(conn)[NAME] == "dropped"
    reported = "select state, mismatches, last_error from relevo.archive_exports where entity = %s and month = %s"
    state, mismatches, error = conn.execute(reported, ["notification_deliveries", older]).fetchone()
    assert (state, mismatches) == ("verified", 0)
    assert "is in cold storage. Restore the object at the service" in error
    between.trouble = None
    export_later(retired, 30)
    assert set(exports(conn).values()) == {"dropped"}


def test_an_upload_whose_answer_was_lost_is_not_made_twice(retired, conn, s3_settings, between) -> None:
    """The client asks again, is told that the object is there, finds it to be its own, and goes on."""
    lost: set[str] = set()

    def lose_first_answer(asked: Asked, forward: Forward) -> Given | None:
        given = forward(asked)
        if asked.is_upload and asked.path not in lost:
            lost.add(asked.path)
            return None
        return given

    between.trouble = lose_first_answer
    assert export(retired).outcome == "ok"
    assert len(lost) == 3
    assert state_and_mismatches(conn) == ("verified", 0)
    assert {asked.headers["If-None-Match"] for asked in between.asked if asked.is_upload} == {"*"}


def test_a_service_that_is_busy_slow_and_shows_little_does_no_harm(retired, conn, between) -> None:
    """First requests that are refused for now are made again; answers that come in two halves, each late, but within the
    limit, are answers; and put, get and list alone are enough: what died in pieces is then the bucket owner's to abort."""
    seen: set[tuple[str, str]] = set()
    forbidden: list[str] = []

    def trouble(asked: Asked, forward: Forward) -> Given:
        if asked.method == "GET" and "uploads" in asked.path:
            forbidden.append(asked.path)
            return refusal(403, "AccessDenied")
        if len(seen) < 3 and (asked.method, asked.path) not in seen:
            seen.add((asked.method, asked.path))
            return refusal(503, "SlowDown")
        given = forward(asked)
        return Given(given.status, given.headers, given.body, given.promised, pause_s=0.08)

    between.trouble = trouble
    began = time.monotonic()
    assert export(retired).outcome == "ok"
    assert time.monotonic() - began > 0.16 * 7
    assert (len(seen), bool(forbidden)) == (3, True)
    assert state_and_mismatches(conn) == ("verified", 0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"archive_sse": "AES256"}, {"x-amz-server-side-encryption": "AES256"}),
        (
            {"archive_sse": "aws:kms", "archive_sse_kms_key_id": "alias/cold"},
            {"x-amz-server-side-encryption": "aws:kms", "x-amz-server-side-encryption-aws-kms-key-id": "alias/cold"},
        ),
        ({}, {}),
    ],
    ids=["AES256", "aws:kms", "none"],
)
def test_encryption_is_asked_for(s3_settings, between, file_of, monkeypatch, changes, expected) -> None:
    """The setting travels with every object, whole or in pieces, where S3 expects it."""
    store = open_store(**s3_settings | {"archive_endpoint": between.endpoint} | changes)

    def answer(asked: Asked, _forward: Forward) -> Given:
        if asked.method == "POST" and "uploadId" not in asked.path:
            body = b"<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"
            return Given(200, [("Content-Type", "application/xml")], body)
        if asked.method == "POST":
            body = b"<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"
            return Given(200, [("Content-Type", "application/xml")], body)
        if asked.method == "GET":
            return Given(200, [("Content-Type", "application/xml")], b"<ListBucketResult></ListBucketResult>")
        return Given(200, [("ETag", '"x"')])

    between.trouble = answer  # a service with a key management of its own is more than a test can start
    assert store.put("a/whole.parquet", file_of(b"x" * 100))
    monkeypatch.setattr("relevo.stores.s3._WHOLE", 10)
    assert store.put("a/pieces.parquet", file_of(b"x" * 100))
    whole, begun, piece, _completed = [asked for asked in between.asked if asked.method != "GET"]
    for asked in (whole, begun):
        found = {
            name.lower(): value
            for name, value in asked.headers.items()
            if name.lower().startswith("x-amz-server-side-encryption")
        }
        assert found == expected
    assert not any(name.lower().startswith("x-amz-server-side-encryption") for name in piece.headers)
