"""A real S3 server for tests: SeaweedFS from its wheel, on loopback, with one identity."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import botocore.session

from support.processes import eventually

KEY, SECRET = "relevo-test", "not-a-secret"
_ADMIN = "relevo-admin"
# Every session would read all that boto3 knows of S3 anew, for a sixth of a second: here they share it.
botocore.session.create_loader = cache(botocore.session.create_loader)


class Seaweed(NamedTuple):
    """A running server."""

    endpoint: str

    def client(self) -> Any:
        """Return a plain boto3 client, to look behind the store's back."""
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=_ADMIN,
            aws_secret_access_key=SECRET,
        )

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        self.client().create_bucket(Bucket=name)


def _free_ports(count: int) -> list[int]:
    """Return free ports; the server also takes those 10,000 above.

    Processes that start servers in the same moment, with numbers close to each other, look at different ones.
    """
    found: list[int] = []
    for port in range(11_000 + os.getpid() % 1_000 * 10, 22_000):
        if not any(_is_taken(each) for each in (port, port + 10_000)):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def seaweed() -> Iterator[Seaweed]:
    """Start the server, wait until it is well, and kill it at the end; or use another service, if one is named.

    RELEVO_TEST_S3_ENDPOINT leads to it; it has to know both keys, with the one secret, as one owner of buckets.
    """
    if elsewhere := os.environ.get("RELEVO_TEST_S3_ENDPOINT"):
        yield Seaweed(elsewhere)
        return
    folder = Path(tempfile.mkdtemp(prefix="relevo-seaweed-"))
    process, running = start(folder)
    try:
        await_answer(process, running, folder)
        yield running
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def start(folder: Path) -> tuple[subprocess.Popen[bytes], Seaweed]:
    """Start a server on free ports with its data in a folder, which may hold some already."""
    rights = {KEY: ["Read", "Write", "List", "Tagging"], _ADMIN: ["Admin"]}  # who administrates gets buckets by asking
    identities = [
        {"name": key, "credentials": [{"accessKey": key, "secretKey": SECRET}], "actions": actions}
        for key, actions in rights.items()
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    master, volume, filer, s3 = _free_ports(4)
    command = [
        str(Path(sys.executable).with_name("weed")),
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder}",
        "-master.telemetry=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-master.port={master}",
        f"-volume.port={volume}",
        "-filer",
        f"-filer.port={filer}",
        "-s3",
        f"-s3.port={s3}",
        f"-s3.config={folder / 's3.json'}",
        "-master.volumeSizeLimitMB=64",
        "-volume.max=500",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    return process, Seaweed(f"http://127.0.0.1:{s3}")


def await_answer(process: subprocess.Popen[bytes], running: Seaweed, folder: Path) -> None:
    """Wait until a server takes objects."""

    def is_well() -> bool:
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{running.endpoint}/healthz", timeout=1):
                return True
        except OSError:
            return False

    eventually(is_well, "the S3 server is well", within=60)
    eventually(lambda: _takes(running), "the S3 server takes an object", within=60, every=0.3)


def _takes(running: Seaweed) -> bool:
    client = running.client()
    try:
        with suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            client.create_bucket(Bucket="warm")  # it may have been made before anything could be put into it
        client.put_object(Bucket="warm", Key="up", Body=b"x")
    except Exception:  # noqa: BLE001 whatever it is, it is not ready yet
        return False
    return True
