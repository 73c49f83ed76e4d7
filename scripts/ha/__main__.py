"""Switch over, kill the primary, kill nodes, under load: what is lost, and how long nothing happens."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import psycopg

from ha.cluster import PATRONI, Cluster, Node, cluster
from ha.load import Load, Series
from relevo.embedded import binaries
from relevo.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "scripts" / "proof" / "results" / "ha.json"
CALM_S = 8.0
REST_S = 180.0
_OPEN = """
select exists (select from relevo.notification_deliveries where status in ('pending', 'retryable', 'sent'))
    or exists (select from relevo.notification_events where state in ('waiting', 'fanning'))
"""
_FATES = """
select e.event_key, e.id, coalesce(array_agg(d.status::text) filter (where d.id is not null), '{}')
  from relevo.notification_events e
  left join relevo.notification_deliveries d on d.notification_event_id = e.id
 group by e.id
"""
FAULTS = (
    "switchover",
    "primary killed",
    "primary's node dead",
    "synchronous standby's node dead",
    "primary's node frozen",
)


def main() -> int:
    """Run, and return 0 if nothing that was acknowledged is lost."""
    words = argparse.ArgumentParser(prog="make ha", description=__doc__)
    words.add_argument("--rounds", type=int, default=1, help="how often each fault comes")
    words.add_argument("--only", choices=FAULTS, action="append", help="this fault alone; may be given more than once")
    words.add_argument("--replicas", type=int, default=2, help="replicas of Relevo")
    words.add_argument("--json", type=Path, default=None, help="where the result is written")
    words.add_argument("--record", action="store_true", help=f"write it to {RECORD.relative_to(ROOT)}")
    words.add_argument("--folder", type=Path, default=None, help="where data and logs are kept")
    given = words.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="relevo-ha-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Three nodes, one of them a synchronous standby, and {given.replicas} replicas; logs: {folder}", flush=True)
    with (
        cluster(folder) as nodes,
        Sandbox(rate_per_s=0, receipt_delay_s=0, keep_messages=1_000) as sandbox,
    ):
        load = Load(nodes.dsn, sandbox, folder)
        load.prepare()
        load.start(given.replicas)
        try:
            result = _play(nodes, load, list(given.only or FAULTS) * given.rounds)
        finally:
            load.stop()
    _tell(result)
    for place in [given.json] * (given.json is not None) + [RECORD] * given.record:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if result["calm"] and not any(result["lost"].values()) else 1


def _play(nodes: Cluster, load: Load, faults: list[str]) -> dict[str, Any]:
    """Strike, wait until all is whole again, and look at what is there in the end."""
    commit = _commit()
    struck = [("none", time.time(), time.time() + CALM_S)]
    time.sleep(CALM_S)
    for fault in faults:
        began = time.time()
        _strike(nodes, fault)
        nodes.wait_until_whole()
        time.sleep(CALM_S)
        struck.append((fault, began, time.time()))
        print(f"{fault}: whole again", flush=True)
    load.end_writing()
    calm = _is_reached(nodes.dsn)
    pushes, counted = load.pushes()
    series = (load.database, load.enqueues, pushes)
    return {
        "what": "ha",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        "patroni": _patroni_version(),
        "postgresql": binaries.version(binaries.find()),
        "calm": calm,
        "faults": [_measured(fault, begin, end, series) for fault, begin, end in struck],
        **_counted(nodes.dsn, load, counted),
    }


def _strike(nodes: Cluster, fault: str) -> None:
    """Cause a fault, and wait until the other nodes have settled without the one that it hit."""
    primary, standby = nodes.in_role("leader"), nodes.in_role("sync_standby")
    assert primary is not None
    assert standby is not None
    match fault:
        case "switchover":
            nodes.switch_over()
            nodes.wait_for_roles_without(primary, "leader")
        case "primary killed":
            primary.kill_postgres()
            nodes.wait_for_roles_without(primary, "leader")
        case "primary's node dead":
            _kill_node(nodes, primary)
        case "primary's node frozen":
            primary.freeze()
            nodes.wait_for_roles_without(primary, "leader", "sync_standby")
            time.sleep(CALM_S)
            primary.thaw()
        case _:
            _kill_node(nodes, standby)


def _kill_node(nodes: Cluster, node: Node) -> None:
    """Kill all that runs on a node; it comes back a while after the others have settled."""
    node.kill()
    nodes.wait_for_roles_without(node, "leader", "sync_standby")
    time.sleep(CALM_S)
    node.start()


def _measured(fault: str, begin: float, end: float, series: tuple[Series, ...]) -> dict[str, Any]:
    database, enqueues, pushes = (round(each.silence(begin, end), 2) for each in series)
    return {"fault": fault, "database_s": database, "enqueue_s": enqueues, "pushes_s": pushes}


def _is_reached(dsn: str) -> bool:
    """Wait until everything enqueued has come to its end; return whether it did."""
    deadline = time.monotonic() + REST_S
    while time.monotonic() < deadline:
        with psycopg.connect(dsn, autocommit=True) as conn:
            if conn.execute(_OPEN).fetchone() == (False,):
                return True
        time.sleep(0.5)
    return False


def _counted(dsn: str, load: Load, received: dict[str, int]) -> dict[str, Any]:
    """Compare what was acknowledged with what the tables and the phones have."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        rows = {n for (n,) in conn.execute("select n from plain_rows")}
        fates = {key: (event, statuses) for key, event, statuses in conn.execute(_FATES)}
    events = load.events
    return {
        "acknowledged": {"plain rows": len(load.rows), "events": len(events)},
        "lost": {
            "plain rows": len(load.rows - rows),
            "events": sum(1 for key, (event, _) in events.items() if fates.get(key, (0,))[0] != event),
            "events whose push is not confirmed": sum(1 for key in events if fates.get(key, (0, []))[1] != ["ok"]),
            "events whose push no phone got": sum(1 for key in events if not received.get(key)),
        },
        "pushes": sum(received.values()),
        "pushed twice": sum(1 for times in received.values() if times > 1),
    }


def _tell(result: dict[str, Any]) -> None:
    print(f"\nPatroni {result['patroni']}, PostgreSQL {result['postgresql']}; longest silence in seconds:\n")
    print(f"{'fault':36}{'database':>10}{'enqueue':>10}{'pushes':>10}")
    for row in result["faults"]:
        print(f"{row['fault']:36}{row['database_s']:>10.2f}{row['enqueue_s']:>10.2f}{row['pushes_s']:>10.2f}")
    print(f"\nacknowledged: {result['acknowledged']}; pushes {result['pushes']}, twice {result['pushed twice']}")
    print(f"lost: {result['lost']}" + ("" if result["calm"] else "; NOT all came to an end"))


def _patroni_version() -> str:
    return next((each.version for each in distributions(path=[str(PATRONI)]) if each.name == "patroni"), "unknown")


def _commit() -> str:
    """Return the commit that is run, and say so if files differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "no commit"


if __name__ == "__main__":
    sys.exit(main())
