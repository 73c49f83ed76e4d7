"""The command `relevo sandbox`: what it says, what it refuses, how it leaves."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from relevo import cli
from support.processes import PATIENCE_S

COMMAND = [sys.executable, "-m", "relevo", "sandbox"]


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command on a free port and return it with its address."""
    command = [*COMMAND, "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            url = said.split("EXPO_BASE_URL=")[1].removesuffix("\n")  # nothing sticks to it when it is copied
            assert process.stdout.readline() == f"See it at {url}/\n"
            told = [process.stdout.readline().partition("=")[0] for _ in range(5)]
            settings = ["PUSH_PROJECTS_FILE", "FCM_BASE_URL", "APNS_BASE_URL", "APNS_SANDBOX_BASE_URL", "PUSH_CA_FILE"]
            assert told == settings
            yield process, url
        finally:
            process.kill()


def test_serves_until_told_to_stop() -> None:
    """It says where it listens, tells each request in a line without tokens or secrets, and leaves with 0."""
    with started("--access-token", "s3cret", "--fault", "500:1", "--latency-ms", "1") as (process, url):
        body, headers = {"to": "ExponentPushToken[ana-who-is-secret]"}, {"authorization": "Bearer s3cret"}
        assert (
            requests.post(f"{url}/--/api/v2/push/send", json=body, headers=headers, timeout=PATIENCE_S).status_code
            == 500
        )
        assert requests.post(f"{url}/--/api/v2/push/send", json=body, timeout=PATIENCE_S).status_code == 401
        requests.get(f"{url}/sandbox/phones/{body['to']}", timeout=PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        reported, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    first, second, third = reported.splitlines()
    assert first.startswith("POST  /--/api/v2/push/send  500  1 messages  @relevo/app  fault 500")
    assert second.startswith("POST  /--/api/v2/push/send  401")
    assert third.startswith("GET  /sandbox/phones/…  404")
    assert "secret" not in reported
    assert "s3cret" not in reported


def test_a_folder_has_the_settings_for_a_shell(tmp_path: Path) -> None:
    """Read by a shell in any folder, they lead Relevo to this sandbox, by every push service."""
    folder = tmp_path / "push sandbox"
    with started("--folder", str(folder)) as (process, url):
        assert process.stdout is not None
        line = process.stdout.readline().removeprefix("For a shell: ").removesuffix("\n")
        shell = ["sh", "-c", f"{line}; env"]
        told = subprocess.run(shell, cwd="/", capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    found = dict(each.split("=", 1) for each in told.splitlines() if "=" in each)
    assert found["EXPO_BASE_URL"] == url
    assert Path(found["PUSH_PROJECTS_FILE"]) == folder / "projects.json"
    assert Path(found["PUSH_CA_FILE"]).exists()
    assert all(found[f"{name}_BASE_URL"].startswith("https://") for name in ("FCM", "APNS", "APNS_SANDBOX"))


def test_quiet() -> None:
    """With --quiet nothing is said about requests, and Ctrl-C is a good way to leave."""
    with started("--quiet") as (process, url):
        assert requests.get(url, timeout=PATIENCE_S).status_code == 200
        process.send_signal(signal.SIGINT)
        reported, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, reported) == (0, "")


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (["--port", "TAKEN"], 1, "in use"),
        (["--port", "0", "--fault", "nonsense:0.1"], 2, "no fault 'nonsense'"),
        (["--port", "0", "--fault", "500:x"], 2, "has no share"),
        (["--port", "0", "--fault", "apns:UNREGISTERED:0.1"], 2, "apns has no fault 'UNREGISTERED'"),
        (["--port", "0", "--time-scale", "0"], 2, "time_scale"),
    ],
)
def test_refusals(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    complaint: str,
) -> None:
    """A port in use, a fault or a setting that does not exist: one sentence and a next step, never a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [str(taken.getsockname()[1]) if each == "TAKEN" else each for each in options]
        monkeypatch.setattr(sys, "argv", ["relevo", "sandbox", *words])
        with pytest.raises(SystemExit) as left:
            cli.main()
    assert left.value.code == code
    assert complaint in capsys.readouterr().err
