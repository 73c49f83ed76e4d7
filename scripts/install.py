"""Makes or mends .venv; scripts/install.sh calls it when a glance shows that something changed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UNFINISHED = VENV / ".unfinished"  # exists only during an installation: left over, it tells of a cut
STAMPS = {"run": VENV / ".stamp-run", "dev": VENV / ".stamp-dev"}
EXTRAS = {"run": "embedded,native,words", "dev": "dev"}
IDENTITY = "import pip, sys; assert sys.version_info >= (3, 11); print(sys.base_prefix, sys.version)"


def main(need: str) -> None:
    """Bring .venv to the state that `need` (run or dev) asks for."""
    with only_one() as lock:
        wishes = b"".join(
            [
                os.fsencode(ROOT),
                b"\n",
                *((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")),
            ]
        )
        if not usable():
            build(lock)
        elif satisfied(need, wishes):  # by another make, while this one waited
            return
        install(need, wishes, lock)


@contextmanager
def only_one() -> Iterator[int]:
    """Hold the checkout's lock; pip inherits it, so two installations never meet, whoever is killed."""
    lock = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Waiting for another make that is installing …")
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield lock
    finally:
        os.close(lock)


def usable() -> bool:
    """Return whether .venv was finished, was made in this place, still runs, and is by the Python asked for."""
    pip = VENV / "bin" / "pip"
    if UNFINISHED.exists() or not pip.is_file() or os.fsencode(PYTHON) not in pip.read_bytes()[:1024]:
        return False
    found = identity(str(PYTHON))
    asked = os.environ.get("PYTHON")
    return found != "" and (not asked or found == identity(sys.executable))


def identity(python: str) -> str:
    """Return what tells this Python from another; nothing if it is broken, too old or without pip."""
    try:
        return subprocess.run([python, "-Ic", IDENTITY], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def satisfied(need: str, wishes: bytes) -> bool:
    """Return whether these wishes are fulfilled; an installation for dev is enough for run."""
    return any(stamp.is_file() and stamp.read_bytes() == wishes for stamp in (STAMPS["dev"], STAMPS[need]))


def build(lock: int) -> None:
    """Make .venv anew; when that fails, leave none behind."""
    say(f"{'Remaking' if os.path.lexists(VENV) else 'Making'} .venv with Python {sys.version.split()[0]}.")
    # Started from a virtual environment, perhaps the one to be removed, the Python below it is what lasts.
    python = sys.executable if sys.prefix == sys.base_prefix else str(Path(sys.executable).resolve())
    remove()
    VENV.mkdir()
    UNFINISHED.touch()
    command = [python, "-m", "venv", str(VENV)]
    made = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=[lock])
    if made.returncode != 0:
        remove()
        sys.exit(
            f"{made.stdout}{made.stderr}{python} could not make a virtual environment.\n"
            "If its venv module is incomplete, install it (Debian, Ubuntu: apt install python3-venv)."
        )


def remove() -> None:
    """Remove .venv; if it is a link, only the link."""
    if VENV.is_symlink() or VENV.is_file():
        VENV.unlink()
    elif VENV.exists():
        shutil.rmtree(VENV)


def install(need: str, wishes: bytes, lock: int) -> None:
    """Install relevo, editable, with its pinned parts, and leave the stamp."""
    say("Installing what pyproject.toml and constraints.txt ask for (the first time takes a minute) …")
    started = time.monotonic()
    UNFINISHED.touch()
    for stamp in STAMPS.values():
        if stamp.is_file() and stamp.read_bytes() != wishes:
            stamp.unlink()
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    what = ["--editable", f".[{EXTRAS[need]}]", "--constraint", "constraints.txt"]
    env = os.environ | {"PIP_USER": "0"}  # a personal `user = true` has no meaning in a virtual environment
    code = subprocess.run([*pip, *what], cwd=ROOT, env=env, check=False, pass_fds=[lock]).returncode
    if code >= 0:  # pip came to its own end and left nothing half-done
        UNFINISHED.unlink()
    if code != 0:
        sys.exit("pip could not install (its words are above). Mend that and run make again.")
    STAMPS[need].write_bytes(wishes)
    say(f"Installed in {time.monotonic() - started:.0f} s.")


def say(sentence: str) -> None:
    """Print to stderr, so that a command's output stays its own."""
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
    except PermissionError as error:
        sys.exit(f"No permission: {error}. Remove .venv as its owner, or work in a clone of your own.")
