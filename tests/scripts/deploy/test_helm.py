"""The Helm chart: its values fit its schema, and what it renders runs Relevo as the image does, without a secret of its own."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import make_dist
import pack_chart
from relevo import config
from support.helm_chart import Chart, merged

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "scripts" / "deploy" / "helm" / "relevo"
CHART = Chart(FOLDER)
SCHEMA = json.loads((FOLDER / "values.schema.json").read_text(encoding="utf-8"))
KNOWN = {row.name for row in config.describe(config.load({}, None))}
LEAST: dict[str, Any] = {
    "image": {"repository": "registry.example/relevo"},
    "database": {"existingSecret": "relevo-database"},
    "settings": {"RELEVO_INSTANCE": "production"},
}
ALL = LEAST | {
    "database": {"existingSecret": "relevo-database", "migrateKey": "OWNER_URL"},
    "secretsAsEnvironment": ["relevo-expo"],
    "secretsAsFiles": ["relevo-push", "relevo-keys"],
    "settings": {"RELEVO_INSTANCE": 'the "blue" one', "PUSH_PROJECTS_FILE": "/etc/relevo/relevo-push/projects.json"},
    "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
    "imagePullSecrets": [{"name": "registry"}],
    "podAnnotations": {"example.com/a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
}


def found(kind: str, **values: Any) -> list[dict[str, Any]]:
    """Return the objects of a kind that a release has."""
    return [each for each in CHART.render(**values) if each["kind"] == kind]


def pods(**values: Any) -> dict[str, dict[str, Any]]:
    """Return what each pod of a release is made of: the replicas' and the migration's."""
    [deployment], [job] = found("Deployment", **values), found("Job", **values)
    return {each["kind"]: each["spec"]["template"]["spec"] for each in (deployment, job)}


def refusals(values: dict[str, Any]) -> list[str]:
    """Return what the schema refuses of values, as Helm asks it: over the chart's own."""
    errors = jsonschema_rs.validator_for(SCHEMA).iter_errors(merged(CHART.values, values))
    return ["/".join(map(str, error.instance_path)) for error in errors]


def assign(values: dict[str, Any], setting: str) -> None:
    """Put a value where `--set` of Helm puts it."""
    path, _, value = setting.partition("=")
    *outer, last = path.split(".")
    for name in outer:
        values = values.setdefault(name, {})
    listed = value.strip("{}").split(",") if value.startswith("{") else None
    values[last] = listed or {"true": True, "false": False}.get(value, value)


class TestValues:
    """`values.yaml` explains itself, and the schema knows each value."""

    @pytest.mark.parametrize("values", [LEAST, ALL], ids=["least", "all"])
    def test_they_are_taken(self, values: dict[str, Any]) -> None:
        """With what one must give, and with everything given, the schema refuses nothing."""
        assert refusals(values) == []

    @pytest.mark.parametrize(
        ("values", "place"),
        [
            ({"replica": 3}, ""),
            ({"database": {"url": "postgresql://a:secret@b/c"}}, "database"),
            ({"settings": {"DATABASE_URL": "postgresql://a:secret@b/c"}}, "settings"),
            ({"settings": {"EXPO_ACCESS_TOKEN": "secret"}}, "settings"),
            ({"settings": {"OUTBOX_BATCH_SIZE": 100}}, "settings/OUTBOX_BATCH_SIZE"),
            ({"image": {"digest": "latest"}}, "image/digest"),
            ({"terminationGracePeriodSeconds": 30}, "terminationGracePeriodSeconds"),
        ],
    )
    def test_others_are_refused(self, values: dict[str, Any], place: str) -> None:
        """An unknown name, a secret in plain text and a value that harms are refused before anything is installed."""
        assert refusals(merged(LEAST, values)) == [place]

    def test_what_one_must_give_is_asked_for(self) -> None:
        """Without image, Secret and instance nothing is installed."""
        assert {"image/repository", "database/existingSecret", "settings"} <= set(refusals({}))

    def test_each_value_has_a_comment(self) -> None:
        """Above each value is a sentence, unless its name says all."""
        lines = (FOLDER / "values.yaml").read_text(encoding="utf-8").splitlines()
        plain = {"pullPolicy", "interval", "podAnnotations", "nodeSelector", "tolerations", "affinity", "type", "port"}
        plain |= {"maxUnavailable", "requests", "limits", "cpu", "memory"}
        sections = {name for name, value in CHART.values.items() if isinstance(value, dict) and value} | {
            "serviceMonitor"
        }
        bare = []
        for before, line in zip(["", *lines], lines, strict=False):
            name = re.match(r"\s*(\w+):", line)
            if name and not before.lstrip().startswith("#"):
                bare.append(name[1])
        assert sorted(set(bare) - plain - sections) == []

    def test_the_schema_has_them_all(self) -> None:
        """Each value of the file is a property of the schema, at each depth that the schema describes."""

        def unknown(values: dict[str, Any], schema: dict[str, Any]) -> list[str]:
            told = schema.get("properties", {})
            here = [name for name in values if told and name not in told]
            return here + [
                each
                for name, value in values.items()
                if isinstance(value, dict)
                for each in unknown(value, told.get(name, {}))
            ]

        assert unknown(CHART.values, SCHEMA) == []


class TestRendered:
    """What a release consists of."""

    def test_its_kinds(self) -> None:
        """Replicas, a migration, a budget and a service; the monitor where it is asked for; and never a Secret."""
        least = {each["kind"] for each in CHART.render(**LEAST)}
        assert least == {"Deployment", "Job", "PodDisruptionBudget", "Service", "ServiceAccount"}
        assert {each["kind"] for each in CHART.render(**ALL)} == least | {"ServiceMonitor"}
        off = {"migrations": {"enabled": False}, "podDisruptionBudget": {"enabled": False}}
        without = CHART.render(**LEAST, **off, serviceAccount={"create": False})
        assert {each["kind"] for each in without} == {"Deployment", "Service"}

    def test_the_migration_comes_first(self) -> None:
        """A hook before installation and upgrade runs `relevo migrate`, with the owner's address if there is one."""
        [job] = found("Job", **ALL)
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        [container] = job["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["migrate"]
        keys = {
            kind: pod["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["key"]
            for kind, pod in pods(**ALL).items()
        }
        assert keys == {"Deployment": "DATABASE_URL", "Job": "OWNER_URL"}
        assert pods(**LEAST)["Job"]["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["key"] == "DATABASE_URL"

    def test_the_migration_needs_nothing_of_the_release(self) -> None:
        """Hooks run before anything else exists: the Job names no account that the chart makes."""
        assert "serviceAccountName" not in pods(**LEAST)["Job"]
        kept = pods(**LEAST, serviceAccount={"create": False, "name": "mine"})
        assert {pod["serviceAccountName"] for pod in kept.values()} == {"mine"}

    @pytest.mark.parametrize("kind", ["Deployment", "Job"])
    def test_a_pod_may_do_little(self, kind: str) -> None:
        """Not root, no capability, a read-only root with room for temporary files, and no token of Kubernetes."""
        pod = pods(**ALL)[kind]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        dockerfile = (ROOT / "scripts" / "deploy" / "Dockerfile").read_text(encoding="utf-8")
        user = f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
        assert f"USER {user}\n" in dockerfile
        places = {volume["name"]: volume for volume in pod["volumes"]}
        for container in [*pod["initContainers"], *pod["containers"]]:
            told = container["securityContext"]
            assert told["readOnlyRootFilesystem"] is True
            assert told["allowPrivilegeEscalation"] is False
            assert told["capabilities"] == {"drop": ["ALL"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= places.keys()
        [main] = pod["containers"]
        [temporary] = [mount["name"] for mount in main["volumeMounts"] if mount["mountPath"] == "/tmp"]
        assert "emptyDir" in places[temporary]
        assert {"name": "TMPDIR", "value": "/tmp"} in main["env"]

    def test_settings_are_known_and_arrive_whole(self) -> None:
        """Each variable of a pod is a setting of ours, and a value with quotes is what was given."""
        for pod in pods(**ALL).values():
            [container] = pod["containers"]
            given = {each["name"]: each.get("value") for each in container["env"]}
            assert set(given) - KNOWN <= {"TMPDIR"}
            assert given["RELEVO_INSTANCE"] == 'the "blue" one'
            assert container["envFrom"] == [{"secretRef": {"name": "relevo-expo"}}]

    def test_probes_ask_what_relevo_serves(self) -> None:
        """Paths are routes that need no token, and ports are the ones that the process listens on."""
        [container] = pods(**LEAST)["Deployment"]["containers"]
        paths = {name: container[name]["httpGet"]["path"] for name in container if name.endswith("Probe")}
        assert paths == {
            "startupProbe": "/health/live",
            "livenessProbe": "/health/live",
            "readinessProbe": "/health/ready",
        }
        settings = config.load({"DATABASE_URL": "postgresql://nowhere/x"}, None)
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        assert ports["http"] == settings.http_port
        assert {"name": "METRICS_PORT", "value": str(ports["metrics"])} in container["env"]
        [service] = found("Service", **LEAST)
        assert service["spec"]["ports"][0]["targetPort"] == "http"

    def test_a_pod_has_time_to_stop(self) -> None:
        """Kubernetes waits longer than Relevo takes, and the schema allows no less."""
        needed = config.load({}, None).worker_shutdown_timeout_ms / 1000
        assert pods(**LEAST)["Deployment"]["terminationGracePeriodSeconds"] > needed
        assert SCHEMA["properties"]["terminationGracePeriodSeconds"]["minimum"] > needed

    def test_selectors_find_the_replicas_alone(self) -> None:
        """Deployment, budget, services and spread choose the replicas' labels, which the migration's pod has not."""
        [deployment], [job] = found("Deployment", **ALL), found("Job", **ALL)
        chosen = deployment["spec"]["selector"]["matchLabels"]
        assert chosen.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
        assert not chosen.items() <= job["spec"]["template"]["metadata"]["labels"].items()
        [budget] = found("PodDisruptionBudget", **ALL)
        assert budget["spec"]["selector"]["matchLabels"] == chosen
        services = {each["metadata"]["name"]: each for each in found("Service", **ALL)}
        assert [each["spec"]["selector"] for each in services.values()] == [chosen, chosen]
        [monitor] = found("ServiceMonitor", **ALL)
        asked = monitor["spec"]["selector"]["matchLabels"].items()
        [scraped] = [name for name, each in services.items() if asked <= each["metadata"]["labels"].items()]
        assert scraped == "relay-metrics"
        assert monitor["metadata"]["labels"]["release"] == "prometheus"

    def test_secret_files_become_relevos_own(self, tmp_path: Path) -> None:
        """The first container copies each key of each Secret so that nobody but its owner may read it, as Relevo insists."""
        [copying] = pods(**ALL)["Deployment"]["initContainers"]
        shell, flag, program = copying["command"]
        mounted, target = tmp_path / "secrets", tmp_path / "relevo"
        held = mounted / "relevo-push" / "..2026_11_19"
        held.mkdir(parents=True)
        (held / "projects.json").write_text("{}")
        (mounted / "relevo-push" / "..data").symlink_to(held.name)
        (mounted / "relevo-push" / "projects.json").symlink_to("..data/projects.json")  # as Kubernetes mounts them
        here = program.replace("/secrets/", f"{mounted}/").replace("/etc/relevo/", f"{target}/")
        subprocess.run([shell, flag, here], check=True)
        copied = [path for path in target.rglob("*") if path.is_file()]
        assert copied == [target / "relevo-push" / "projects.json"]
        assert copied[0].stat().st_mode & 0o777 == 0o600
        assert config.load({"PUSH_PROJECTS_FILE": str(copied[0])}, None).push_projects_file == copied[0]


class TestChart:
    """The chart agrees with the package and with the page that shows how to install it."""

    def test_its_version_is_the_packages(self) -> None:
        """Chart and image have the version of pyproject.toml, without what says that it is in work."""
        version = make_dist.version_of().partition(".dev")[0]
        assert (CHART.about["version"], CHART.about["appVersion"]) == (version, version)

    def test_it_is_packed_with_the_version(self, tmp_path: Path) -> None:
        """The archive holds every file of the chart, and names the version that is released."""
        packed = pack_chart.pack(tmp_path, "9.8.7-dev.6")
        with tarfile.open(packed) as archive:
            archive.extractall(tmp_path, filter="data")
        files = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
        assert {path.relative_to(tmp_path / "relevo").as_posix() for path in tmp_path.glob("relevo/**/*.*")} == files
        about = Chart(tmp_path / "relevo").about
        assert (about["version"], about["appVersion"]) == ("9.8.7-dev.6", "9.8.7-dev.6")
        assert pack_chart.versions_of(FOLDER / "Chart.yaml") == {CHART.about["version"]}

    def test_what_helm_is_given_is_taken(self) -> None:
        """The values by which `make dist` lets Helm lint and render the chart are ones that the schema takes."""
        values: dict[str, Any] = {}
        for setting in (*pack_chart.LEAST, *pack_chart.MOST):
            assign(values, setting)
        assert refusals(values) == []

    def test_the_image_is_named_by_tag_or_digest(self) -> None:
        """A digest wins over a tag, and a tag over the chart's version."""
        digest = f"sha256:{'0' * 64}"
        for image, name in (
            ({}, f"registry.example/relevo:{CHART.about['appVersion']}"),
            ({"tag": "edge"}, "registry.example/relevo:edge"),
            ({"tag": "edge", "digest": digest}, f"registry.example/relevo@{digest}"),
        ):
            named = merged(LEAST, {"image": image})
            assert {pod["containers"][0]["image"] for pod in pods(**named).values()} == {name}

    def test_the_page_installs_it(self) -> None:
        """The command of the guide gives values that the schema takes, for a chart that is in its place."""
        page = (ROOT / "server" / "docs" / "deployment.md").read_text(encoding="utf-8")
        [command] = re.findall(r"^\$ helm install ((?:.*\\\n)*.*)", page, re.MULTILINE)
        words = shlex.split(command.replace("\\\n", " "))
        assert (ROOT / words[1]) == FOLDER
        values: dict[str, Any] = {}
        for word, setting in pairwise(words):
            if word == "--set":
                assign(values, setting)
        assert refusals(values) == []

    def test_unknown_words_of_templates_are_refused(self, tmp_path: Path) -> None:
        """What the tests' renderer does not know of Go's templates it does not pass over."""
        (tmp_path / "templates").mkdir()
        (tmp_path / "Chart.yaml").write_text("version: 1.0.0")
        (tmp_path / "values.yaml").write_text("a: b")
        (tmp_path / "templates" / "a.yaml").write_text('a: {{ lookup "v1" .Values.a }}')
        with pytest.raises(AssertionError, match="no call that is known"):
            Chart(tmp_path).render()
