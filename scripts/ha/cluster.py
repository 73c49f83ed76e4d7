"""Three nodes of PostgreSQL under Patroni, on loopback: one primary, a synchronous standby, one more standby."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from relevo.embedded import binaries, identity

PATRONI = Path(sys.executable).parents[1] / "ha"
"""Where `make ha` installs Patroni, apart from what Relevo needs."""
NODES = 3
PORTS = range(20_000, 32_000)
TTL_S, LOOP_S, RETRY_S = 20, 2, 3
"""The shortest that Patroni takes: after TTL_S without a word the primary's node counts as dead."""
ASK_S = 3.0
PATIENCE_S = 180.0
SETTINGS = {"max_connections": 200, "shared_buffers": "128MB", "wal_keep_size": "256MB", "max_wal_senders": 8}


@dataclass
class Node:
    """One machine of the cluster: Patroni, and the PostgreSQL it looks after."""

    name: str
    folder: Path
    ports: dict[str, int]
    wrap: tuple[str, ...]
    popen: dict[str, Any]
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def data(self) -> Path:
        """Where its PostgreSQL keeps everything."""
        return self.folder / "data"

    def start(self) -> None:
        """Start Patroni, which starts PostgreSQL."""
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PATRONI), "LC_ALL": "C"}
        with (self.folder / "patroni.log").open("ab") as log:
            words = [*self.wrap, sys.executable, "-m", "patroni", str(self.folder / "patroni.yml")]
            self.process = subprocess.Popen(
                words, env=environ, stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **self.popen
            )

    def is_running(self) -> bool:
        """Return whether its Patroni runs."""
        return self.process is not None and self.process.poll() is None

    def kill_postgres(self) -> None:
        """Kill PostgreSQL with all its processes, as the machine's own failure would; Patroni is left."""
        pid = self.postmaster()
        for each in (pid, *_children(pid)) if pid else ():
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)

    def kill(self) -> None:
        """Kill all that runs on it."""
        if self.process is not None:
            self.process.kill()
        self.kill_postgres()
        if self.process is not None:
            self.process.wait()

    def freeze(self) -> None:
        """Stop everything on it where it is, as a machine that hangs or is cut off: connections to it stay open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue everything on it."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        patroni, postmaster = self.process.pid if self.process else None, self.postmaster()
        for pid in (patroni, postmaster):
            for each in (pid, *_children(pid)) if pid else ():
                with suppress(ProcessLookupError):
                    os.kill(each, number)

    def stop(self) -> None:
        """Stop Patroni, which stops PostgreSQL."""
        if self.process is not None and self.is_running():
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        self.kill()

    def postmaster(self) -> int | None:
        """Return the number of PostgreSQL's first process; none if it does not run."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            return pid if (Path("/proc") / str(pid) / "cwd").samefile(self.data) else None
        except (OSError, ValueError, IndexError):
            return None

    def ask(self, path: str, body: dict[str, Any] | None = None, patience_s: float = ASK_S) -> Any:
        """Ask its Patroni; nothing if it does not answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports['rest']}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=patience_s) as answer:
            said = answer.read()
        return json.loads(said) if said.startswith((b"{", b"[")) else said.decode()


@dataclass
class Cluster:
    """All nodes."""

    nodes: list[Node]

    @property
    def dsn(self) -> str:
        """The address an app or a worker is given: every host, and the wish for the one that may write."""
        hosts = ",".join(f"127.0.0.1:{node.ports['postgres']}" for node in self.nodes)
        return f"postgresql://postgres@{hosts}/app?target_session_attrs=read-write&connect_timeout=2"

    def members(self) -> list[dict[str, Any]]:
        """Return what the cluster says of its members, asked of whoever answers."""
        for node in self.nodes:
            if node.is_running():
                with suppress(OSError, ValueError):
                    return list(node.ask("/cluster")["members"])
        return []

    def in_role(self, *roles: str) -> Node | None:
        """Return the node that has one of these roles now, as the cluster sees it."""
        for member in self.members():
            if member["role"] in roles:
                return next(node for node in self.nodes if node.name == member["name"])
        return None

    def is_whole(self) -> bool:
        """Return whether there are a primary, a synchronous standby and one more, all of them up to date."""
        members = self.members()
        roles = sorted(member["role"] for member in members)
        states = {member["state"] for member in members}
        return (
            len(members) == NODES
            and roles.count("leader") == 1
            and "sync_standby" in roles
            and states <= {"running", "streaming"}
            and len({member.get("timeline") for member in members}) == 1
        )

    def wait_until_whole(self) -> None:
        """Wait until all three do their part."""
        self._wait(self.is_whole, "whole")

    def wait_for_roles_without(self, node: Node, *roles: str) -> None:
        """Wait until other nodes than this one have these roles."""

        def has_roles() -> bool:
            return set(roles) <= {member["role"] for member in self.members() if member["name"] != node.name}

        self._wait(has_roles, f"without {node.name}")

    def _wait(self, look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not look():
            if time.monotonic() > deadline:
                raise SystemExit(f"The cluster is not {what} after {PATIENCE_S:.0f} s: {self.members()}")
            time.sleep(0.5)

    def switch_over(self) -> None:
        """Promote the synchronous standby to primary, in an orderly way."""
        leader = self.in_role("leader")
        assert leader is not None
        leader.ask("/switchover", {"leader": leader.name}, patience_s=60)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start the nodes and a database on them; stop them in the end."""
    if not (PATRONI / "patroni").is_dir():
        raise SystemExit("Patroni is not installed. Run: make ha")
    made = Cluster(_nodes(folder))
    try:
        for node in made.nodes:
            node.start()
        made.wait_until_whole()
        leader = made.in_role("leader")
        assert leader is not None
        dsn = f"postgresql://postgres@127.0.0.1:{leader.ports['postgres']}/postgres"
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("create database app")
        yield made
    finally:
        for node in made.nodes:
            node.stop()


def _nodes(folder: Path) -> list[Node]:
    who = identity.choose()
    taken = _free_ports(3 * NODES)
    nodes = []
    for number in range(NODES):
        here = folder / f"node-{number + 1}"
        here.mkdir(mode=0o700)
        ports = dict(zip(("postgres", "rest", "raft"), taken[3 * number : 3 * number + 3], strict=True))
        nodes.append(Node(here.name, here, ports, who.wrap, who.popen()))
    for node in nodes:
        (node.folder / "patroni.yml").write_text(json.dumps(_configuration(node, nodes), indent=1))
        (node.folder / "patroni.log").touch()
        who.own(node.folder)
    return nodes


def _configuration(node: Node, nodes: list[Node]) -> dict[str, Any]:
    """Return what Patroni reads; YAML takes JSON. Everybody on loopback is let in: this is a toy for measuring."""

    def at(which: str, of: Node = node) -> str:
        return f"127.0.0.1:{of.ports[which]}"

    word = secrets.token_hex(8)
    users = ("superuser", "postgres"), ("replication", "replicator"), ("rewind", "rewinder")
    return {
        "scope": "relevo-ha",
        "name": node.name,
        "restapi": {"listen": at("rest"), "connect_address": at("rest")},
        "raft": {
            "data_dir": str(node.folder / "raft"),
            "self_addr": at("raft"),
            "partner_addrs": [at("raft", of=each) for each in nodes if each is not node],
        },
        "bootstrap": {
            "dcs": {
                "ttl": TTL_S,
                "loop_wait": LOOP_S,
                "retry_timeout": RETRY_S,
                "primary_start_timeout": 0,
                "synchronous_mode": True,
                "synchronous_mode_strict": True,
                "postgresql": {"use_pg_rewind": True, "parameters": SETTINGS | {"wal_log_hints": "on"}},
            },
            "initdb": [{"encoding": "UTF8"}, "no-locale"],
        },
        "postgresql": {
            "listen": at("postgres"),
            "connect_address": at("postgres"),
            "data_dir": str(node.data),
            "bin_dir": str(binaries.find()),
            "parameters": {"unix_socket_directories": ""},
            "authentication": {role: {"username": name, "password": word} for role, name in users},
            "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
        },
    }


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _free_ports(count: int) -> list[int]:
    """Return ports that are free now, below those the system takes for outgoing connections."""
    found: list[int] = []
    while len(found) < count:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found
