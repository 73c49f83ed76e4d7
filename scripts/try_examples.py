"""Runs the examples of the README and the guide against a wheel, installed in an environment of its own.

The tests of the pages run their examples by the checkout. Here they run them by what a user installs: Python blocks,
SQL, commands of `relevo`, the line for cron, the roles. `make examples` takes the wheel in dist/; `make dist` does so,
too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "server,native,words,archive-query,iceberg"
APPS = ("django", "sqlalchemy[asyncio]", "asyncpg", "httpx")
"""The packages that the pages' apps use beside Relevo."""
TESTS = ("test_snippets.py", "test_commands.py", "test_deployment.py", "test_hosted_databases.py")


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel and the apps' libraries in an empty environment, and return the environment's Python."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    words = ("--quiet", "--constraint", str(ROOT / "constraints.txt"), f"{wheel}[{EXTRAS}]", *APPS)
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", *words], check=True)
    return python


def run_examples(wheel: Path) -> int:
    """Run the pages' tests with the examples in the wheel's environment; return how they ended."""
    with tempfile.TemporaryDirectory() as folder:
        python = install(wheel, Path(folder))
        tests = [str(ROOT / "tests" / "docs" / name) for name in TESTS]
        environ = os.environ | {"RELEVO_TEST_INSTALLED": str(python)}
        command = [sys.executable, "-m", "pytest", "--quiet", *tests]
        return subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode


def main() -> int:
    """Take the wheel that is named, or the one in dist/."""
    wheels = [Path(word) for word in sys.argv[1:]] or sorted((ROOT / "dist").glob("*.whl"))
    if len(wheels) != 1:
        print("There is no wheel in dist/: run `make dist`, or name a wheel.", file=sys.stderr)
        return 2
    return run_examples(wheels[0].resolve())


if __name__ == "__main__":
    sys.exit(main())
