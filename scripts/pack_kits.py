"""Packs the kits of server/clients as npm tarballs, and tries them in an empty folder, for scripts/make_dist.py."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import generate_clients

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = ROOT / "server" / "clients"
KITS = ("client", "pg", "web", "expo", "react")
TYPED = (
    "@relevo/client",
    "@relevo/client/sign",
    "@relevo/pg",
    "@relevo/web",
    "@relevo/react",
)  # with no types of the app's own
LENT = ("react", "react-dom", "@types/react", "drizzle-orm")  # what an app that uses these kits has already
_RENDER = """
import { createElement as make } from "react";
import { renderToString } from "react-dom/server";
import { Bell, Inbox, Preferences, RelevoScreens } from "@relevo/react";
const state = { status: "registering" };
const push = { device: {}, state: () => state, subscribe: () => () => undefined, register: async () => undefined };
const told = renderToString(make(RelevoScreens, { push, locale: "es" }, make(Bell), make(Inbox), make(Preferences)));
if (!told.includes("Notificaciones, ninguna sin leer")) throw new Error(`@relevo/react renders ${told}`);
"""
_IMPORT = """
for (const name of process.argv.slice(1)) {
  if (!Object.keys(await import(name)).length) throw new Error(`${name} exports nothing`);
}
"""


def npm_version(version: str) -> str:
    """Return a version of Python as npm writes it: 0.4.0.dev0 is 0.4.0-dev.0."""
    return re.sub(r"\.?(dev|a|b|rc)(\d+)$", r"-\1.\2", version)


def build() -> None:
    """Compile the kits from nothing, so that no file of a source that is gone is packed."""
    generate_clients.install()
    for built in (*CLIENTS.glob("*/dist"), *CLIENTS.glob("*/*.tsbuildinfo")):
        shutil.rmtree(built) if built.is_dir() else built.unlink()
    generate_clients.run("npx", "--no-install", "tsc", "-b", "--force")


def pack(target: Path, version: str, repository: str = "") -> list[Path]:
    """Make a tarball of each kit, with its license, the version, and the address of the sources if there is one."""
    return [_pack(kit, target, npm_version(version), repository) for kit in KITS]


def _pack(kit: str, target: Path, version: str, repository: str) -> Path:
    package: dict[str, Any] = json.loads((CLIENTS / kit / "package.json").read_text(encoding="utf-8"))
    package["version"] = version
    package["dependencies"] = dict.fromkeys(package.get("dependencies", {}), version)
    if repository:
        package["repository"] = {"type": "git", "url": f"git+{repository}.git", "directory": f"server/clients/{kit}"}
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        for name in package["files"]:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            source = CLIENTS / kit / name
            shutil.copytree(source, stage / name) if source.is_dir() else shutil.copy(source, stage / name)
        shutil.copy(ROOT / "LICENSE", stage)
        (stage / "package.json").write_text(json.dumps(package, indent=2) + "\n", encoding="utf-8")
        _run("npm", "pack", "--silent", "--pack-destination", target.resolve(), cwd=stage)
    return target / f"relevo-{kit}-{version}.tgz"


def check(tarballs: list[Path]) -> None:
    """Install the tarballs offline in an empty folder; import all they export, render the screens, compile."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "package.json").write_text('{"private": true, "type": "module"}\n', encoding="utf-8")
        quiet = ("--offline", "--omit=peer", "--legacy-peer-deps", "--ignore-scripts", "--no-audit", "--no-fund")
        _run("npm", "install", "--silent", *quiet, *(tarball.resolve() for tarball in tarballs), cwd=folder)
        exported = [each for tarball in tarballs for each in _exports(folder / "node_modules", tarball)]
        for lent in LENT:
            (folder / "node_modules" / lent).parent.mkdir(exist_ok=True)
            (folder / "node_modules" / lent).symlink_to(CLIENTS / "node_modules" / lent)
        fakes = (CLIENTS / "expo" / "dist" / "test" / "hooks.js").as_uri()
        _run("node", "--import", fakes, "--input-type=module", "--eval", _IMPORT, *exported, cwd=folder)
        _run("node", "--input-type=module", "--eval", _RENDER, cwd=folder)
        lines = [f'import * as each{place} from "{name}";\n' for place, name in enumerate(TYPED)]
        (folder / "app.ts").write_text("".join(lines), encoding="utf-8")
        words = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom", "app.ts")
        _run("node", CLIENTS / "node_modules" / "typescript" / "bin" / "tsc", *words, cwd=folder)


def _exports(modules: Path, tarball: Path) -> list[str]:
    """See that all that a kit exports is in it; return what an app imports, without files that it only serves."""
    kit = tarball.name.split("-")[1]
    place = modules / "@relevo" / kit
    package = json.loads((place / "package.json").read_text(encoding="utf-8"))
    found = []
    for name, target in package["exports"].items():
        files = target.values() if isinstance(target, dict) else [target]
        missing = [file for file in files if not (place / file).is_file()]
        if missing:
            raise SystemExit(f"{tarball.name} lacks {', '.join(missing)}")
        if isinstance(target, dict):
            found.append(f"@relevo/{kit}{name.removeprefix('.')}")
    if not (place / "LICENSE").is_file():
        raise SystemExit(f"{tarball.name} lacks LICENSE")
    return found


def _run(*words: str | Path, cwd: Path) -> None:
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
