"""Writes the types of server/clients from the OpenAPI document, builds the kits, and writes the page of their screens.

`make clients` runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import http_docs

CLIENTS = Path(__file__).parents[1] / "server" / "clients"
TYPES = CLIENTS / "client" / "src" / "generated"
STORIES = CLIENTS.parent / "docs" / "pictures" / "screens.html"


def generate(types: Path) -> None:
    """Write the types of every route into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "openapi.json"
        written.write_text(json.dumps(http_docs.document()), encoding="utf-8")
        run("npx", "--no-install", "openapi-ts", "-f", "openapi-ts.config.mjs", openapi=written, types=types)


def tell_stories(page: Path) -> None:
    """Write the page that shows each screen of @relevo/react in each state, language and theme; needs built kits."""
    run("node", "react/dist/test/stories.js", "react/styles.css", str(page))


def run(*words: str, **settings: Path) -> None:
    """Run a program of Node.js in the folder of the kits; say what it said if it fails."""
    environ = {**os.environ, **{f"RELEVO_{name.upper()}": str(value) for name, value in settings.items()}}
    done = subprocess.run(words, cwd=CLIENTS, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")


def install() -> None:
    """Install what the lock file names, unless something is installed."""
    if not (CLIENTS / "node_modules").exists():
        run("npm", "ci", "--ignore-scripts")


def main() -> None:
    """Install what is needed, write the types, build, write the page."""
    install()
    generate(TYPES)
    run("npx", "--no-install", "tsc", "-b")
    tell_stories(STORIES)
    print(f"Written: {TYPES.relative_to(CLIENTS.parents[1])}, {STORIES.relative_to(CLIENTS.parents[1])}.")


if __name__ == "__main__":
    main()
