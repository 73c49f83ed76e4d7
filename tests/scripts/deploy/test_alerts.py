"""Each alert fires in the incident that it is for, names what it is about, and stays silent while all is well."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from support import promql
from support.optional_parts import find_part

ALERTS_FILE = Path(__file__).parents[3] / "scripts" / "deploy" / "alerts.yml"
RULES = {rule["alert"]: rule for rule in yaml.safe_load(ALERTS_FILE.read_text(encoding="utf-8"))["groups"][0]["rules"]}
LATER = "3h"
BOTH = ("prod", "staging")
"""Two installations of Relevo that one Prometheus scrapes; the incident is in the first."""


class Incident(NamedTuple):
    """A metric with labels, its value while all is well and in the incident, and the labels that the alert has then."""

    metric: str
    labels: dict[str, str]
    well: str
    bad: str
    named: tuple[str, ...] = ()


def gauge(metric: str, well: float, bad: float, *named: str, **labels: str) -> Incident:
    """Return an incident of a gauge that stays at a value; the labels that are named are in the alert, beside the job."""
    return Incident(f"relevo_{metric}", labels, f"{well}x200", f"{bad}x200", ("job", *named))


INCIDENTS = {
    "RelevoDown": Incident("up", {"instance": "one"}, "1x200", "0x200", ("job", "instance")),
    "RelevoAbsent": Incident("up", {"instance": "one"}, "1x200", "_x200", ("job",)),
    "RelevoNoDatabase": gauge("database_up", 1, 0, "instance", instance="one"),
    "RelevoNobodyWorks": gauge("cycle_quiet_seconds", 10, 300, cycle="reaper"),
    "RelevoPushesLate": gauge("queue_oldest_due_seconds", 5, 400, "project", project="shop", lane="urgent"),
    "RelevoBulkLate": gauge("queue_oldest_due_seconds", 1800, 4000, "project", project="shop", lane="bulk"),
    "RelevoEventsWait": gauge("events_oldest_waiting_seconds", 20, 700),
    "RelevoReceiptsOverdue": gauge("receipts_oldest_due_seconds", 60, 4000, "project", project="shop"),
    "RelevoProjectStopped": gauge("project_breaker_open", 0, 1, "project", project="shop"),
    "RelevoWorkerSilent": gauge("worker_silent_seconds", 13, 40, "hostname", hostname="web-2"),
    "RelevoServiceUnreachable": gauge(
        "service_unreachable", 0, 1, "hostname", "service", hostname="web-2", service="expo"
    ),
    "RelevoClockWrong": gauge("clock_skew_seconds", 0.2, 3600, "hostname", hostname="web-2"),
    "RelevoDiskFull": gauge("disk_full", 0, 1, "hostname", "place", hostname="web-2", place="/tmp"),
    "RelevoLogLost": Incident(
        "relevo_log_lines_lost_total", {"instance": "one"}, "0x200", "0+1x200", ("job", "instance")
    ),
    "RelevoNewsNotTaken": gauge(
        "news_oldest_on_their_way_seconds", 5, 1000, "subscription", "webhook", subscription="crm", webhook="crm"
    ),
    "RelevoCopy": gauge("database_copied", 0, 1),
    "RelevoTokensVanish": gauge("project_brake_active", 0, 1, "project", project="shop"),
    "RelevoRunawayHeld": gauge("events_held", 0, 3),
    "RelevoCycleFails": gauge("cycle_failures", 1, 5, "cycle", "source", cycle="ingest", source="ocds"),
    "RelevoCyclePaused": gauge("cycle_paused", 0, 1, "cycle", "source", cycle="dispatch", source=""),
    "RelevoListenersDegraded": gauge("listeners_degraded", 0, 1),
    "RelevoSourceSilent": gauge("source_age_seconds", 120, 4000, "source", source="ocds"),
    "RelevoArchiveWaits": gauge("archive_lag_seconds", 3600, 200000),
    "RelevoOldSnapshot": gauge("oldest_snapshot_seconds", 60, 2000),
    "RelevoRequestsFail": Incident(
        "relevo_push_requests_total",
        {"provider": "expo", "outcome": "not_sent"},
        "0+1x200",
        "0+30x200",
        ("job", "provider"),
    ),
    "RelevoPushesFail": Incident(
        "relevo_run_items_total", {"cycle": "dispatch", "item": "notifications_failed"}, "0+1x200", "0+30x200", ("job",)
    ),
}
BESIDE = {
    "RelevoRequestsFail": ("relevo_push_requests_total", {"provider": "expo", "outcome": "answered"}, "0+20x200"),
    "RelevoPushesFail": ("relevo_run_items_total", {"cycle": "dispatch", "item": "notifications_sent"}, "0+100x200"),
}
"""What goes well beside the incident, for a share."""


def series(metric: str, labels: dict[str, str], values: str) -> dict[str, str]:
    """Return a series as promtool reads it."""
    said = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return {"series": f"{metric}{{{said}}}", "values": values}


def told(alert: str, *, bad: bool) -> dict[str, Any]:
    """Return a test of one alert for promtool: two installations, of which the first meets the incident, or none does."""
    incident, group = INCIDENTS[alert], []
    jobs = ("relevo",) if incident.metric == "up" else BOTH
    for number, job in enumerate(jobs):
        values = incident.bad if bad and number == 0 else incident.well
        group.append(series(incident.metric, incident.labels | {"job": job}, values))
        if alert in BESIDE:
            metric, labels, usual = BESIDE[alert]
            group.append(series(metric, labels | {"job": job}, usual))
    labels = {"job": jobs[0]} | incident.labels
    firing = {name: labels[name] for name in incident.named if labels[name]}
    own = {
        "__name__": "ALERTS",
        "alertname": alert,
        "alertstate": "firing",
        "severity": RULES[alert]["labels"]["severity"],
    }
    said = (
        "ALERTS{" + ",".join(f'{name}="{value}"' for name, value in (own | firing).items() if name != "__name__") + "}"
    )
    asked = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    expected = [{"labels": said, "value": 1}] if bad else []
    return {
        "interval": "1m",
        "input_series": group,
        "promql_expr_test": [{"expr": asked, "eval_time": LATER, "exp_samples": expected}],
    }


def promtool_agrees(folder: Path, tests: list[dict[str, Any]], every: str = "1m") -> None:
    """Run tests of the rules by promtool, which evaluates them so often."""
    file = folder / "alerts.test.yml"
    asked = {"rule_files": [str(ALERTS_FILE)], "evaluation_interval": every, "tests": tests}
    file.write_text(yaml.safe_dump(asked), encoding="utf-8")
    words = [find_part("promtool"), "test", "rules", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_its_incident() -> None:
    """No alert is without a try, and no try without its alert."""
    assert set(INCIDENTS) == set(RULES)


@pytest.mark.parametrize("alert", RULES)
def test_its_threshold_lies_between_well_and_bad(alert: str) -> None:
    """At one instant the expression holds for the incident and not for what is well."""
    incident = INCIDENTS[alert]
    metrics = {each.metric for each in promql.named(RULES[alert]["expr"])}

    def holds(values: str) -> promql.Vector:
        samples: dict[str, promql.Vector] = {metric: [] for metric in metrics}
        usual = [BESIDE[alert]] if alert in BESIDE else []
        for metric, labels, said in [(incident.metric, incident.labels, values), *usual]:
            number = said.removeprefix("0+").partition("x")[0]
            if number != "_":
                samples[metric].append((labels | {"job": "relevo"}, float(number)))
        return promql.evaluate(RULES[alert]["expr"], samples)

    assert holds(incident.bad)
    assert not holds(incident.well)


@pytest.mark.needs("promtool")
@pytest.mark.parametrize("bad", [True, False], ids=["incident", "well"])
def test_it_fires_in_its_incident_alone(tmp_path: Path, bad: bool) -> None:
    """After three hours of the incident the alert fires once, for the installation that meets it, and else it does not."""
    tests = [told(alert, bad=bad) for alert in RULES]
    promtool_agrees(tmp_path, tests)


ONE_HOST = {
    # Not seen since 0 s: late after 12 s, so that gauges read at 20 s or later have it; scraped at 41 s at the latest.
    "RelevoWorkerSilent": "_ _ _ 30 45 60",
    # The second failure in a row is in the heartbeat of 20 s at the latest.
    "RelevoServiceUnreachable": "_ _ _ 1 1 1",
    # In the first heartbeat after it went wrong.
    "RelevoClockWrong": "0 0 3600 3600 3600 3600",
    # Looked for every 10 s, and in the heartbeat 4 s later.
    "RelevoDiskFull": "_ _ 1 1 1 1",
    # With the first line that is lost: each run with work logs one.
    "RelevoLogLost": "0 0 0 1 1 1",
}
"""By alert what scrapes every 15 s find at the latest from the moment on in which one machine fails."""


@pytest.mark.needs("promtool")
def test_a_host_that_fails_is_named_within_a_minute(tmp_path: Path) -> None:
    """A machine that stands still, has no DNS, a wrong clock or a full disk is in an alert after 60 s, and one that is late once is not."""
    tests = []
    for alert, values in ONE_HOST.items():
        incident = INCIDENTS[alert]
        labels = incident.labels | {"job": "relevo"}
        named = {name: labels[name] for name in incident.named}
        expected = {"exp_labels": {"severity": "warning"} | named, "exp_annotations": RULES[alert]["annotations"]}
        tests.append(
            {
                "interval": "15s",
                "input_series": [series(incident.metric, labels, values)],
                "alert_rule_test": [{"alertname": alert, "eval_time": "60s", "exp_alerts": [expected]}],
            }
        )
    late = series("relevo_worker_silent_seconds", {"hostname": "web-2", "job": "relevo"}, "_ 13 _ _ 14 _")
    silent = [{"alertname": "RelevoWorkerSilent", "eval_time": f"{at}s", "exp_alerts": []} for at in range(0, 90, 15)]
    tests.append({"interval": "15s", "input_series": [late], "alert_rule_test": silent})
    promtool_agrees(tmp_path, tests, "15s")
