"""What scripts/deploy ships works: the image's steps in a clean folder, one instance started by them, its metrics in every query."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import yaml

from relevo import config
from relevo.core.metrics import Metrics
from relevo.http.dashboard.guide import anchor_of
from relevo.operators.gauges import GAUGES
from relevo.sandbox import Sandbox
from support import promql
from support.http_server import free_port
from support.optional_parts import find_part
from support.processes import NOWHERE, Process, eventually

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "scripts" / "deploy"
DOCS = ROOT / "server" / "docs"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
RELAY = SERVICES["relay"]
ALERTS = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
PANELS = json.loads((DEPLOY / "grafana" / "relevo.json").read_text(encoding="utf-8"))["panels"]
QUERIES = [rule["expr"] for rule in ALERTS] + [each["expr"] for panel in PANELS for each in panel["targets"]]
KNOWN = {row.name for row in config.describe(config.load({}, None))}
NOT_OURS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


def dockerfile() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions with their words."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def said(instruction: str) -> list[str]:
    """Return the words of each instruction of one kind."""
    return [words for name, words in dockerfile() if name == instruction]


def image_settings() -> dict[str, str]:
    """Return the variables that the image sets."""
    return dict(word.split("=", 1) for words in said("ENV") for word in shlex.split(words))


def filled(value: object) -> str:
    """Return a value of the compose file as it is without a variable of the reader's own but those it insists on."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", re.sub(r"\$\{(\w+):\?[^}]*\}", r"chosen-\1", str(value)))


def run(*words: str | Path, **options: Any) -> str:
    """Run a program to its good end, and return what it said."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, timeout=300, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Replay the Dockerfile in a clean folder: what it copies, then what it installs, without what others publish.

    The dependencies are this Python's; that the constraints name them, the installation of the tests has shown.
    """
    folder = tmp_path_factory.mktemp("image")
    offered = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    for words in said("COPY"):
        *sources, target = words.split()
        there = folder / target.lstrip("/")
        for source in sources:
            assert f"!{source}" in offered, f"{source} is copied and not sent to the builder"
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, there, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                there.mkdir(exist_ok=True)
                shutil.copy(ROOT / source, there)
    [install] = [shlex.split(words) for words in said("RUN") if words.startswith("pip install")]
    assert install == [
        "pip",
        "install",
        "--no-cache-dir",
        "--constraint",
        "/src/constraints.txt",
        "/src[server,native,words,otel]",
    ]
    assert (folder / "src" / "constraints.txt").is_file()
    bare = ("--quiet", "--no-deps", "--no-index")
    run(sys.executable, "-m", "pip", "wheel", *bare, "--no-build-isolation", "--wheel-dir", folder, folder / "src")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", *bare, "--no-compile", *folder.glob("*.whl"))
    shutil.rmtree(folder / "src")
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder / "venv" / "bin"


class Instance(NamedTuple):
    """A running Relevo, as the image starts it."""

    environ: dict[str, str]
    folder: Path

    def metrics(self) -> str:
        """Scrape it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.environ['METRICS_PORT']}/metrics", timeout=30) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="module")
def instance(
    image: Path, admin: psycopg.Connection[Any], server: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Instance]:
    """Start what the image starts, with its and the compose file's settings, on a database and a sandbox of the test's."""
    name, folder = f"deploy_{os.getpid()}", tmp_path_factory.mktemp("instance")
    admin.execute(f"create database {name}".encode())
    composed = {key: filled(value) for key, value in RELAY["environment"].items() if not key.startswith("ARCHIVE_")}
    with Sandbox(receipt_delay_s=0) as sandbox:
        own = {
            "DATABASE_URL": f"{server.dsn.rsplit('/', 1)[0]}/{name}",
            "EXPO_BASE_URL": sandbox.url,
            "HTTP_PORT": str(free_port()),
            "METRICS_PORT": str(free_port()),
            "FOLDER_SOURCE_DIR": str(tmp_path_factory.mktemp("tenders")),
            "INGEST_NOTIFY_FIRST_RUN": "true",
            "RECEIPT_FIRST_POLL_MS": "100",
            "RELEVO_DATA_DIR": str(folder / "data"),
        }
        environ = {"PATH": f"{image}:{os.environ['PATH']}"} | image_settings() | composed | own
        words = [*json.loads(said("ENTRYPOINT")[0]), *json.loads(said("CMD")[0])]
        process = Process([str(image / words[0]), *words[1:]], environ, folder, "relevo")
        try:
            process.hears("worker_started")
            yield Instance(environ, folder)
            assert process.stops() == 0, process.stderr
        finally:
            process.kill()
    admin.execute(f"drop database {name} with (force)".encode())


class TestImage:
    """The image is small, runs as nobody in particular, and starts what it says."""

    def test_it_is_slim_and_its_user_is_not_root(self) -> None:
        """A slim base of a Python that fits; the user is made before it is used, and nothing is run after that."""
        assert re.fullmatch(r"python:3\.1[1-9]-slim", said("FROM")[0])
        order = [name for name, _ in dockerfile()]
        [making] = [words for words in said("RUN") if "useradd" in words]
        name = making.split()[-1]
        [uid], [gid] = re.findall(r"--uid (\d+)", making), re.findall(r"groupadd --gid (\d+)", making)
        assert said("USER") == [f"{uid}:{gid}"], "as numbers, for runAsNonRoot of Kubernetes"
        assert int(uid) >= 10_000, "a user of no host"
        assert "RUN" not in order[order.index("USER") :]
        assert said("WORKDIR") == [f"/home/{name}"]

    def test_it_is_of_no_architecture(self) -> None:
        """No step names a processor: the same file builds for each that the base image has."""
        text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
        steps = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
        assert re.findall(r"(?i)amd64|x86|arm|aarch|--platform", steps) == []

    def test_its_settings_and_port_exist(self) -> None:
        """What it sets is a setting with a value that is taken, and its port is the one that is served."""
        assert set(image_settings()) <= KNOWN
        settings = config.load({"DATABASE_URL": "postgresql://nowhere/x", **image_settings()}, None)
        assert said("EXPOSE") == [str(settings.http_port)]

    def test_the_installed_command_is_there(self, image: Path, tmp_path: Path) -> None:
        """Far from the checkout, the installed command tells its version, and knows what the image calls."""
        environ = {"PATH": os.environ["PATH"]}
        place = run(image / "python", "-c", "import relevo; print(relevo.__file__)", cwd=tmp_path, env=environ)
        assert place.startswith(str(image.parent))
        assert re.search(r"\d+\.\d+", run(image / "relevo", "--version", cwd=tmp_path, env=environ))
        words = [*json.loads(said("ENTRYPOINT")[0])[1:], *json.loads(said("CMD")[0]), "--help"]
        assert "Usage: relevo run" in run(image / "relevo", *words, cwd=tmp_path, env=environ)

    def test_it_is_found_healthy(self, instance: Instance) -> None:
        """The health check passes on what was started, and fails where nobody serves."""
        [check] = said("HEALTHCHECK")
        command = json.loads(check.partition("CMD ")[2])
        here = [word.replace(":8080/", f":{instance.environ['HTTP_PORT']}/") for word in command]
        assert here != command

        def is_well() -> bool:
            return subprocess.run(here, env=instance.environ, capture_output=True, check=False).returncode == 0

        eventually(is_well, "the health check passes")
        nowhere = [word.replace(":8080/", f":{free_port()}/") for word in command]
        assert subprocess.run(nowhere, env=instance.environ, capture_output=True, check=False).returncode != 0


class TestCompose:
    """Whatever the compose file names is there, and fits what it is named for."""

    def test_files_exist(self) -> None:
        """The build's context and file, and every file that is mounted, are in the checkout."""
        context = (DEPLOY / RELAY["build"]["context"]).resolve()
        assert context == ROOT
        assert (context / RELAY["build"]["dockerfile"]) == DEPLOY / "Dockerfile"
        mounted = [volume.split(":") for service in SERVICES.values() for volume in service.get("volumes", ())]
        files = [DEPLOY / source for source, *_ in mounted if source.startswith(".")]
        assert len(files) >= 5
        assert [file for file in files if not file.is_file()] == []
        assert {source for source, *_ in mounted if not source.startswith(".")} == set(COMPOSE["volumes"])

    def test_settings_exist_and_are_taken(self) -> None:
        """Each is ours and has a value that is not refused."""
        given = {name: filled(value) for name, value in RELAY["environment"].items()}
        assert set(given) - KNOWN == NOT_OURS
        settings = config.load({name: value for name, value in given.items() if name in KNOWN}, None)
        assert settings.warnings == ()
        assert settings.database_url is not None

    def test_services_meet(self) -> None:
        """Addresses and ports that one service names are those of another."""
        given = {name: filled(value) for name, value in RELAY["environment"].items()}
        database = SERVICES["db"]["environment"]
        user, password = database["POSTGRES_USER"], filled(database["POSTGRES_PASSWORD"])
        assert given["DATABASE_URL"] == f"postgresql://{user}:{password}@db:5432/{database['POSTGRES_DB']}"
        [port] = [word.partition("=")[2] for word in SERVICES["store"]["command"] if word.startswith("-s3.port=")]
        assert given["ARCHIVE_ENDPOINT"] == f"http://store:{port}"
        assert f"-bucket={given['ARCHIVE_BUCKET']}" in SERVICES["store"]["command"]
        assert {name: filled(value) for name, value in SERVICES["store"]["environment"].items()} == {
            name: given[name] for name in NOT_OURS
        }
        [scrape] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
        assert scrape["static_configs"] == [{"targets": [f"relay:{given['METRICS_PORT']}"]}]
        assert RELAY["ports"] == [f"127.0.0.1:{said('EXPOSE')[0]}:{said('EXPOSE')[0]}"]
        assert all(port.startswith("127.0.0.1:") for service in SERVICES.values() for port in service.get("ports", ()))

    def test_nothing_has_a_password_by_default(self) -> None:
        """Every secret is the reader's own, nothing starts without it, and nobody is let in without one."""
        text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
        assert re.findall(r"\$\{(\w*(?:PASSWORD|SECRET)\w*):-", text) == []
        for name in ("POSTGRES_PASSWORD", "STORE_SECRET", "GRAFANA_PASSWORD"):
            assert f"${{{name}:?" in text
        assert "ANONYMOUS" not in text

    def test_images_have_versions(self) -> None:
        """What is started today is what was started yesterday."""
        images = {service["image"] for service in SERVICES.values() if "image" in service}
        assert len(images) == 4
        assert [each for each in images if not re.fullmatch(r"[\w./-]+:v?\d+(\.\d+)+", each)] == []

    def test_the_store_knows_its_options(self) -> None:
        """The S3 store's command, as the tests' own package of it has it, takes every option that is given."""
        command, *options = SERVICES["store"]["command"]
        words = [str(Path(sys.executable).with_name("weed")), "help", command]
        known = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
        assert [each for each in options if f"  {each.partition('=')[0]} " not in known] == []

    def test_everybody_waits_for_a_graceful_stop(self) -> None:
        """Container, unit and pod give the relay more time than it takes to stop."""
        needed = config.load({}, None).worker_shutdown_timeout_ms / 1000
        unit = (DEPLOY / "relevo.service").read_text(encoding="utf-8")
        given = [
            str(RELAY["stop_grace_period"]).removesuffix("s"),
            re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)[0],
        ]
        given += re.findall(
            r"terminationGracePeriodSeconds: (\d+)", (DOCS / "deployment.md").read_text(encoding="utf-8")
        )
        assert len(given) == 3
        assert all(int(each) > needed for each in given)


class TestUnit:
    """The systemd unit is one."""

    @pytest.mark.needs("systemd-analyze")
    def test_systemd_takes_it(self, tmp_path: Path) -> None:
        """`systemd-analyze verify` finds nothing, once the command is where this machine has it."""
        unit = (DEPLOY / "relevo.service").read_text(encoding="utf-8")
        assert "ExecStart=/opt/relevo/bin/relevo run\n" in unit
        here = unit.replace("/opt/relevo/bin/relevo", str(Path(sys.executable).with_name("relevo")))
        (tmp_path / "relevo.service").write_text(here, encoding="utf-8")
        run(find_part("systemd-analyze"), "verify", tmp_path / "relevo.service")

    @pytest.mark.needs("systemd-analyze")
    def test_it_is_not_exposed(self) -> None:
        """`systemd-analyze security` finds little that the service could reach: 2.0 of 10 at most."""
        said = run(find_part("systemd-analyze"), "security", "--offline=true", "--no-pager", DEPLOY / "relevo.service")
        found = re.search(r"exposure level for relevo.service: (\d+\.\d+)", said)
        assert found is not None
        assert float(found[1]) <= 2.0

    def test_its_sandbox_is_closed(self) -> None:
        """It gains no privileges, writes only what is its own, and may open files enough for HTTP and sending."""
        unit = (DEPLOY / "relevo.service").read_text(encoding="utf-8").splitlines()
        for line in ("NoNewPrivileges=yes", "CapabilityBoundingSet=", "ProtectSystem=strict", "PrivateTmp=yes",
                     "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6", "SystemCallFilter=@system-service",
                     "LimitNOFILE=65536"):  # fmt: skip
            assert line in unit


class TestSmoke:
    """`make smoke` goes the whole way on a running instance, and says where it cannot."""

    def test_it_works(self, instance: Instance) -> None:
        """Tender, push, receipt and the rows of runs are said one after the other, each with its time."""
        environ = instance.environ | {"LOG_LEVEL": "warning", "PATH": os.environ["PATH"]}
        told = run(sys.executable, ROOT / "scripts" / "smoke.py", env=environ, cwd=instance.folder)
        steps = ("sandbox answers", "worker is alive", "phone is registered", "tender and event", "got its push")
        places = [told.index(step) for step in (*steps, "receipt confirms", "of dispatch: ok", "It works.")]
        assert places == sorted(places), told
        assert list(Path(environ["FOLDER_SOURCE_DIR"]).iterdir()) == []

    def test_without_a_sandbox_it_refuses(self, instance: Instance) -> None:
        """Where pushes would go to real phones, or nowhere, nothing is begun."""
        environ = instance.environ | {"EXPO_BASE_URL": NOWHERE, "LOG_LEVEL": "warning", "PATH": os.environ["PATH"]}
        words = [sys.executable, str(ROOT / "scripts" / "smoke.py")]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 1
        assert "sends to no sandbox" in done.stderr
        assert "Traceback" not in done.stderr


def labels_of() -> dict[str, set[str]]:
    """Return the labels of every sample that /metrics may tell, as the code declares them."""
    own: dict[str, set[str]] = {"up": {"job", "instance"}, "relevo_database_up": set()}
    own["relevo_log_lines_lost_total"] = set()
    for gauge, told in GAUGES.items():
        own[f"relevo_{gauge}"] = set(told.labels)
    for family in (each for each in vars(Metrics()).values() if hasattr(each, "_labelnames")):
        name, labels = family._name, set(family._labelnames)
        own |= {
            f"{name}_total": labels,
            f"{name}_count": labels,
            f"{name}_sum": labels,
            f"{name}_bucket": labels | {"le"},
        }
    return own


class TestQueries:
    """Every query of the alerts and of the dashboard speaks of what a real scrape tells."""

    def test_all_they_name_is_told(self, instance: Instance) -> None:
        """It is PromQL; each metric is in the scrape, and each label is one of that metric's."""
        samples, labels = promql.samples_of(instance.metrics()), labels_of()
        assert len(QUERIES) > 20
        asked = [each for query in QUERIES for each in promql.named(query)]
        assert sorted({each.metric for each in asked} - set(samples)) == []
        of_target = {"job", "instance"}  # Prometheus adds them
        assert [each for each in asked if not each.labels <= labels[each.metric] | of_target] == []
        told = [
            (name, set(of)) for name, vector in samples.items() for of, _ in vector if name in labels and name != "up"
        ]
        assert len(told) > 50
        assert [each for each in told if each[1] != labels[each[0]]] == []

    def test_each_bears_two_replicas(self, instance: Instance) -> None:
        """Every replica tells of the whole fleet: with two of them no query matches many series with many."""
        samples = promql.samples_of(instance.metrics())
        projects = {name for name in samples if name.startswith("relevo_project_")}
        told = samples | {name: [({"project": "@acme/app", "provider": "expo"}, 1.0)] for name in projects}
        both = {
            name: [({**labels, "instance": replica}, value) for replica in ("one", "two") for labels, value in vector]
            for name, vector in told.items()
        }
        for query in QUERIES:
            series = promql.check_matching(query, both)
            assert len({str(sorted(labels.items())) for labels, _ in series}) == len(series), query
            assert not projects & {each.metric for each in promql.named(query)} or series, query

    def test_no_alert_fires_on_what_is_well(self, instance: Instance) -> None:
        """On the scrape of a healthy instance no threshold is passed."""
        samples = promql.samples_of(instance.metrics())
        assert [rule["alert"] for rule in ALERTS if promql.evaluate(rule["expr"], samples)] == []

    @pytest.mark.needs("prometheus")
    def test_a_real_prometheus_answers_each(self, instance: Instance, tmp_path: Path) -> None:
        """Started with our configuration, Prometheus scrapes two replicas, takes every rule and answers every query."""
        port = free_port()
        at = instance.environ["METRICS_PORT"]  # one process under two names is two replicas to Prometheus
        text = (DEPLOY / "prometheus.yml").read_text(encoding="utf-8")
        two = f'["127.0.0.1:{at}", "localhost:{at}"]'
        quick = text.replace('["relay:9100"]', two).replace("15s", "1s")
        assert two in quick
        (tmp_path / "prometheus.yml").write_text(quick, encoding="utf-8")
        shutil.copy(DEPLOY / "alerts.yml", tmp_path)
        words = [find_part("prometheus"), f"--config.file={tmp_path / 'prometheus.yml'}"]
        words += [f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
        process = Process(words, {"PATH": os.environ["PATH"]}, tmp_path, "prometheus")

        def ask(path: str, **query: str) -> Any:
            address = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(address, timeout=30) as answer:
                told = json.load(answer)
            assert told["status"] == "success", told
            return told["data"]

        def is_up() -> bool:
            try:
                return bool(ask("query", query="count_over_time(relevo_database_up[1m]) > 1")["result"][1:])
            except OSError:
                return False

        try:
            eventually(is_up, f"Prometheus has scraped twice; it said {process.stderr[-500:]}")
            for query in QUERIES:
                ask("query", query=query)
            rules = eventually(lambda: self._evaluated(ask), "every rule was evaluated")
            assert {rule["health"] for rule in rules} == {"ok"}
            assert {rule["state"] for rule in rules} == {"inactive"}
            gauges = [each["expr"] for panel in PANELS for each in panel["targets"] if "rate(" not in each["expr"]]
            assert sum(bool(ask("query", query=query)["result"]) for query in gauges) >= 2
        finally:
            process.kill()

    @staticmethod
    def _evaluated(ask: Any) -> list[dict[str, Any]]:
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        assert len(rules) == len(ALERTS)
        return rules if all(rule["health"] != "unknown" for rule in rules) else []


class TestAlerts:
    """An alert says where it is explained."""

    def test_each_leads_to_its_place_in_the_runbook(self) -> None:
        """The place is a heading of the runbook."""
        headings = re.findall(r"^### (.+)$", (DOCS / "runbook.md").read_text(encoding="utf-8"), re.M)
        places = {f"/guide/runbook#{anchor_of(each.replace('`', ''))}" for each in headings}
        assert [rule["alert"] for rule in ALERTS if rule["annotations"]["runbook"] not in places] == []
        assert {rule["labels"]["severity"] for rule in ALERTS} == {"critical", "warning"}

    def test_the_page_lists_them_as_they_are(self) -> None:
        """The guide's table has each alert with its expression, its patience and its place, and no other."""
        page = (DOCS / "monitoring.md").read_text(encoding="utf-8")
        listed = re.findall(r"^\| \[`(\w+)`\]\(runbook\.md(#[\w-]+)\): (.+?) \| `(.+?)` \| (\w+) \|$", page, re.M)
        assert listed == [
            (
                rule["alert"],
                rule["annotations"]["runbook"].removeprefix("/guide/runbook"),
                rule["annotations"]["summary"],
                rule["expr"],
                rule["for"],
            )
            for rule in ALERTS
        ]


class TestGrafana:
    """The dashboard is provisioned where it is looked for."""

    def test_it_is_mounted_and_finds_prometheus(self) -> None:
        """The provider's folder is where the file is mounted; the data source's address is the service's."""
        provider = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yaml").read_text(encoding="utf-8"))["providers"][0]
        source = yaml.safe_load((DEPLOY / "grafana" / "datasource.yaml").read_text(encoding="utf-8"))["datasources"][0]
        mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
        assert f"{provider['options']['path']}/relevo.json" in mounted
        assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in mounted
        [port] = SERVICES["prometheus"]["ports"]
        assert source["url"] == f"http://prometheus:{port.split(':')[-1]}"

    def test_panels_do_not_overlap(self) -> None:
        """Each has a number of its own and a place that no other takes."""
        assert len({panel["id"] for panel in PANELS}) == len(PANELS)
        taken = [
            (x, y)
            for place in (panel["gridPos"] for panel in PANELS)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(taken) == len(set(taken))
        assert max(x for x, _ in taken) < 24
