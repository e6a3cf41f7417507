"""Every way to install the rules takes them from one source, and holds the same rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import _jsonnet
import pytest
import yaml

import packaging_rules
import write_rules
from ruleset import read_shipped

MIXIN = packaging_rules.DEPLOY / "mixin" / "mixin.libsonnet"


@pytest.mark.parametrize("path", packaging_rules.FILES, ids=lambda path: path.name)
def test_the_file_is_as_it_would_be_written(path: Path) -> None:
    text = packaging_rules.FILES[path]()
    assert path.read_text(encoding="utf-8") == text, "run `make packaging`"


def test_the_manifests_hold_the_shipped_rules_and_nothing_else() -> None:
    text = packaging_rules.manifests(read_shipped(), {})
    found = list(yaml.safe_load_all(text))
    assert [one["spec"]["groups"] for one in found] == list(read_shipped().values())
    names = [one["metadata"]["name"] for one in found]
    assert len(set(names)) == len(names)
    for one in found:
        assert (one["apiVersion"], one["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
        assert {"metadata", "spec"} == set(one) - {"apiVersion", "kind"}


def test_manifests_carry_the_labels_that_an_operator_asks_for(tmp_path: Path) -> None:
    arguments = ["--format", "prometheusrule", "--label", "release=monitoring"]
    assert write_rules.main([*arguments, "--output", str(tmp_path)]) == 0
    for one in yaml.safe_load_all((tmp_path / "prometheusrules.yaml").read_text()):
        assert one["metadata"]["labels"] == {**packaging_rules.LABELS, "release": "monitoring"}


def test_what_is_no_label_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--format", "prometheusrule", "--label", "release", "--output", str(tmp_path)]
    assert write_rules.main(arguments) == 1
    assert "NAME=VALUE" in capsys.readouterr().err


def mixin(config: str = "{}") -> dict[str, Any]:
    """All of the mixin, with such a `_config`."""
    snippet = f"""
        local mixin = (import '{MIXIN}') + {{ _config+:: {config} }};
        {{
          alerts: mixin.prometheusAlerts.groups,
          recording: mixin.prometheusRules.groups,
          dashboards: mixin.grafanaDashboards,
        }}
    """
    return dict(json.loads(_jsonnet.evaluate_snippet("test", snippet)))


def rules(made: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """The alerts, by name and expression."""
    return {(r["alert"], r["expr"]): r for group in made["alerts"] for r in group["rules"]}


def test_the_mixin_holds_the_shipped_rules_and_boards() -> None:
    made, shipped = mixin(), read_shipped()
    for kind in ("alerts", "recording"):
        groups = [group for name in shipped if name.startswith(kind) for group in shipped[name]]
        assert made[kind] == groups
    assert made["dashboards"] == {
        path.name: json.loads(path.read_text()) for path in packaging_rules.BOARDS.glob("*.json")
    }


def test_the_mixins_config_changes_what_it_names_and_only_that() -> None:
    before = rules(mixin())
    after = rules(
        mixin(
            """{
              disabledAlerts: ['TrainingGpuIdle'],
              severities: { TrainingErrorStorm: 'info' },
              waits: { TrainingErrorStorm: '5m' },
              alertLabels: { team: 'ml' },
              runbookURLPattern: 'https://wiki.example.org/%s',
              grafanaURL: 'https://grafana.example.org',
            }"""
        )
    )
    assert {name for name, _ in before.keys() - after.keys()} == {"TrainingGpuIdle"}
    for (name, expression), rule in after.items():
        shipped = before[name, expression]
        storm = name == "TrainingErrorStorm"
        severity = {"severity": "info"} if storm else {}
        assert rule["labels"] == {**shipped["labels"], **severity, "team": "ml"}
        assert rule.get("for") == ("5m" if storm else shipped.get("for"))
        annotations = rule["annotations"]
        assert annotations["runbook_url"] == f"https://wiki.example.org/{name}"
        assert annotations["dashboard_url"].startswith("https://grafana.example.org/d/trainwarden-")
        assert annotations["description"] == shipped["annotations"]["description"]


def test_the_mixin_knows_its_alerts() -> None:
    with pytest.raises(RuntimeError, match="none of: TrainingNope"):
        mixin("{ disabledAlerts: ['TrainingNope'] }")
