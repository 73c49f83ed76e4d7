"""Take the README's pictures of the dashboard: a fresh demo, some minutes of its life, a headless Chromium.

Usage: .venv/bin/python scripts/take_picture.py [SECONDS]; it writes server/docs/pictures/dashboard*.png.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "server" / "docs" / "pictures"
NAMES: dict[Literal["light", "dark"], str] = {"light": "dashboard.png", "dark": "dashboard-dark.png"}
SIZE = (1200, 760)
MOST_BYTES = 200_000
_CHROMIUM = "/usr/bin/chromium-headless-shell"
_PATIENCE_S = 60.0


def main() -> None:
    """Start the demo in a folder that goes with it, log in by its link, and take the pictures."""
    lives_s = float(sys.argv[1]) if len(sys.argv) > 1 else 1200.0
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        environ = {"PATH": os.environ["PATH"], "HOME": folder, "HTTP_PORT": "0", "RELEVO_DEMO": "true"}
        with said.open("wb") as log:
            words = [str(Path(sys.executable).with_name("relevo")), "run"]
            demo = subprocess.Popen(words, cwd=folder, env=environ, stdout=log, stderr=log)
        try:
            _take(_login_link(said), lives_s)
        finally:
            demo.terminate()
            demo.wait(_PATIENCE_S)
    for name in NAMES.values():
        _weigh(PICTURES / name)


def _weigh(picture: Path) -> None:
    size = picture.stat().st_size
    print(f"{picture.relative_to(ROOT)}: {size:,} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"That is more than {MOST_BYTES:,}.")


def _login_link(said: Path) -> str:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if found := re.search(r"http://\S+/login\?code=\S+", said.read_text(encoding="utf-8")):
            return found[0]
        time.sleep(0.2)
    raise SystemExit(f"The demo printed no link: {said.read_text(encoding='utf-8')[-500:]}")


def _take(login: str, lives_s: float) -> None:
    """Log in at once, for the link is good for ten minutes, and take the pictures later."""
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="light", locale="en-US")
        page.goto(login)
        time.sleep(lives_s)
        for scheme, name in NAMES.items():
            page.emulate_media(color_scheme=scheme)
            page.reload()
            page.wait_for_selector("svg.chart")
            page.screenshot(path=PICTURES / name)
        chromium.close()


if __name__ == "__main__":
    main()
