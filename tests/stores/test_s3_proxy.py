"""The archive's bucket through a proxy: a real S3 server, behind a host that only the proxy knows."""

from __future__ import annotations

from typing import Any

import pytest
from pyarrow.fs import FileType

from support.forward_proxy import CERTIFICATE, FakeProxy
from support.old_months import open_store

KEY = "notification_deliveries/year=2026/month=08/part-00001.parquet"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_bucket_behind_a_proxy(s3_settings: dict[str, Any], file_of, tmp_path, monkeypatch, scheme: str) -> None:
    """Objects go out and come back through HTTP_PROXY or HTTPS_PROXY; of https the proxy sees the host alone."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(CERTIFICATE))
    with FakeProxy(s3_settings["archive_endpoint"], password="relay:secret") as proxy:
        way = {f"{scheme}_proxy": proxy.url("relay:secret"), "archive_endpoint": f"{scheme}://s3.example"}
        store = open_store(**s3_settings | way)
        assert store.put(KEY, file_of(b"content"))
        assert [each.key for each in store.listing("")] == [KEY]
        store.fetch(KEY, tmp_path / "fetched")
        targets = proxy.targets
    assert (tmp_path / "fetched").read_bytes() == b"content"
    expected = "CONNECT s3.example:443" if scheme == "https" else f"/{s3_settings['archive_bucket']}"
    assert [target for target in targets if expected not in target] == []
    assert targets


def test_queries_go_through_the_proxy_too(s3_settings: dict[str, Any], file_of) -> None:
    """What reads the files in place takes the same way."""
    with FakeProxy(s3_settings["archive_endpoint"]) as proxy:
        way = {"http_proxy": proxy.url(), "archive_endpoint": "http://s3.example"}
        store = open_store(**s3_settings | way)
        assert store.put(KEY, file_of(b"content"))
        before = len(proxy.asked)
        filesystem, root = store.arrow_filesystem()
        assert filesystem.get_file_info(f"{root}/{KEY}").type == FileType.File
        assert len(proxy.asked) > before


def test_a_proxy_of_the_environment_that_the_settings_do_not_know(s3_settings, file_of, monkeypatch) -> None:
    """boto3 does not look for a proxy by itself: loopback, and what NO_PROXY of a .env names, stays direct."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert open_store(**s3_settings).put(KEY, file_of(b"content"))
