"""`relevo webpush keys`: a pair of keys whose private half nobody else can read."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relevo.cli.setting_up import cli
from relevo.core.errors import UsageError
from relevo.providers.webpush import credentials


def run(*words: str) -> str:
    """Run it and return what it printed."""
    done = CliRunner().invoke(cli, ["webpush", "keys", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_new_pair(tmp_path: Path) -> None:
    """The private key is in a file for its owner alone; the public one is printed, and again for the same file."""
    file = tmp_path / "vapid.pem"
    made = run(str(file), "--json")
    public = json.loads(made)["public_key"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert credentials.public_key(credentials.load_key(file.read_text())) == public
    before = file.read_text()
    assert public in run(str(file))
    assert file.read_text() == before
    assert "PRIVATE" not in made


@pytest.mark.parametrize("content", [None, "nonsense"])
def test_a_file_that_cannot_be_used(tmp_path: Path, content: str | None) -> None:
    """A file that holds something else, or whose folder is not there, is named, and stays as it is."""
    file = tmp_path / "no" / "vapid.pem" if content is None else tmp_path / "vapid.pem"
    if content:
        file.write_text(content)
    with pytest.raises(UsageError, match="vapid"):
        run(str(file))
    assert content is None or file.read_text() == content
