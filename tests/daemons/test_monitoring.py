"""The dashboard and the alerts in `config/`: Prometheus accepts them, and every metric in them exists."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scratchbus.daemon.metrics import HELP, render_metrics
from tests.optional_tools import find_tool

CONFIG = Path(__file__).parents[2] / "config"
ALERTS = CONFIG / "prometheus-alerts.yml"
DASHBOARD: dict[str, Any] = json.loads((CONFIG / "grafana-dashboard.json").read_text())
TARGETS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
RULES = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]

TESTS = """
rule_files: [{alerts}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: scratchbus_up{{instance="a"}}
        values: 1 1 0 0 0 0
      - series: scratchbus_subscription_held{{subscription="router"}}
        values: 0x10
      - series: scratchbus_subscription_lag_events{{subscription="router"}}
        values: 3x10
    alert_rule_test:
      - eval_time: 2m
        alertname: ScratchbusEngineDown
      - eval_time: 3m
        alertname: ScratchbusEngineDown
        exp_alerts:
          - exp_labels: {{severity: critical, instance: a}}
            exp_annotations:
              summary: The engine does not answer
              description: "{description}"
      - eval_time: 6m
        alertname: ScratchbusEventsRejected
"""


def _promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    tool = find_tool("promtool", "Debian's package prometheus")
    return subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)


def _exposed() -> set[str]:
    """Return the names under which each metric can be queried."""
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", render_metrics(None)[0].decode(), re.MULTILINE))
    found = {f"scratchbus_{name}" for name in HELP if f"scratchbus_{name}_total" not in types}
    for name, kind in types.items():
        found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {name}
    return found


@pytest.mark.parametrize("query", [*TARGETS, *(rule["expr"] for rule in RULES)])
def test_a_query_names_only_metrics_that_exist(query: str):
    named = set(re.findall(r"\bscratchbus_\w+", query))
    assert named
    assert named <= _exposed()


def test_every_alert_of_the_document_is_a_rule():
    document = (
        (Path(__file__).parents[2] / "docs/metrics.md").read_text().partition("## A dashboard, and what to alert on")[2]
    )
    documented = re.findall(r"^\| `([^`]+)`", document, re.MULTILINE)
    assert len(documented) >= 10
    assert set(documented) <= {rule["expr"] for rule in RULES}


def test_every_alert_has_a_severity_and_a_description():
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_promtool_accepts_the_alerts_and_they_fire(tmp_path: Path):
    done = _promtool("check", "rules", ALERTS)
    assert done.returncode == 0, done.stderr
    (down,) = [rule for rule in RULES if rule["alert"] == "ScratchbusEngineDown"]
    description = down["annotations"]["description"].replace("{{ $labels.instance }}", "a")
    file = tmp_path / "tests.yml"
    file.write_text(TESTS.format(alerts=ALERTS, description=description))
    done = _promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_every_query_of_the_dashboard(tmp_path: Path):
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(TARGETS)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = _promtool("check", "rules", file)
    assert done.returncode == 0, done.stderr


def test_the_panels_of_the_dashboard_do_not_overlap():
    taken: dict[tuple[int, int], str] = {}
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert taken.setdefault(cell, panel["title"]) == panel["title"]
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
