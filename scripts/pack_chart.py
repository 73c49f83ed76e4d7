"""Packs the Helm chart of scripts/deploy, and lets Helm look at it, for scripts/make_dist.py."""

from __future__ import annotations

import re
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

CHART = Path(__file__).resolve().parent / "deploy" / "helm" / "relevo"
LEAST = ("image.repository=registry.example/relevo", "database.existingSecret=relevo", "settings.RELEVO_INSTANCE=test")
MOST = (
    "metrics.serviceMonitor.enabled=true",
    "secretsAsFiles={relevo-push,relevo-keys}",
    "secretsAsEnvironment={relevo-expo}",
    "database.migrateKey=OWNER_URL",
)
_VERSION = re.compile(r"^(version|appVersion): (.+)$", re.MULTILINE)


def versions_of(file: Path) -> set[str]:
    """Return the versions that a Chart.yaml names: its own, and the image's."""
    return {found[2] for found in _VERSION.finditer(file.read_text(encoding="utf-8"))}


def pack(target: Path, version: str) -> Path:
    """Make the archive that Helm installs, with this version; equal sources give equal archives but for their time."""
    packed = target / f"relevo-chart-{version}.tgz"
    with tarfile.open(packed, "w:gz") as archive:
        for file in sorted(path for path in CHART.rglob("*") if path.is_file()):
            content = file.read_bytes()
            if file.name == "Chart.yaml":
                content = _VERSION.sub(rf"\1: {version}", content.decode()).encode()
            entry = tarfile.TarInfo(f"relevo/{file.relative_to(CHART).as_posix()}")
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, BytesIO(content))
    return packed


def check(packed: Path) -> None:
    """Lint the chart and render it, with the values that it needs alone and with most others."""
    least = [word for setting in LEAST for word in ("--set", setting)]
    most = [*least, *(word for setting in MOST for word in ("--set", setting))]
    _helm("lint", "--strict", packed, *most)
    for values in (least, most):
        _helm("template", "relay", packed, *values)


def _helm(*words: str | Path) -> None:
    done = subprocess.run(["helm", *map(str, words)], capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode:
        raise SystemExit(f"helm {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
