"""What leads to a board, from an alert or from another board, leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from boards import BOARDS
from boards.board import RUNBOOKS
from boards.tables import Table
from boards.verdict import with_what
from labelling import Labels

PROJECT = Path(__file__).resolve().parents[2]
Models = Mapping[str, Mapping[str, Any]]


def check(url: str, models: Models) -> None:
    """That a link inside Grafana names a board, and variables that it has."""
    parts = urlsplit(url)
    assert parts.path.startswith("/d/"), url
    model = models[parts.path.removeprefix("/d/")]
    names = {f"var-{variable['name']}" for variable in model["templating"]["list"]}
    assert {*parse_qs(parts.query)} <= names, url


def test_alerts_lead_to_boards_that_have_the_variables(
    alerts: list[dict[str, Any]], models: Models
) -> None:
    assert alerts
    for alert in alerts:
        check(re.sub(r"\{\{.*?\}\}", "x", alert["annotations"]["dashboard_url"]), models)


def test_every_board_leads_to_all_others_with_what_is_chosen(models: Models) -> None:
    order = [board.uid for board in BOARDS]
    for uid, model in models.items():
        assert [link["url"] for link in model["links"]] == [f"/d/{o}" for o in order if o != uid]
        for link in model["links"]:
            check(link["url"], models)
            assert link["includeVars"]
            assert link["keepTime"]


def cell_links() -> Iterator[str]:
    for board in BOARDS:
        for panel in board.panels:
            if isinstance(panel, Table):
                yield from (column.url for column in panel.columns if column.url)


def test_cells_lead_to_boards_and_runbooks(alerts: list[dict[str, Any]], models: Models) -> None:
    links = list(cell_links())
    assert links
    for url in links:
        if url.startswith("/"):
            check(url.replace("${__value.text}", "x"), models)
        else:
            assert url == f"{RUNBOOKS}/${{__value.text}}.md"
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"{RUNBOOKS}/{alert['alert']}.md"


def test_the_link_of_an_alert_has_every_label_of_its_subject(
    known: Mapping[str, Labels],
) -> None:
    reported = set(re.findall(r'"(\w+)"', with_what("ALERTS"))) - {"what"}
    elsewhere = {"alertname", "severity", "remediation", "run", "instance", "job"}
    # Labels that repeat another label, or give a detail of the subject; `host` is the instance
    # without its port.
    details = {"result", "uuid", "role", "engine", "scope", "state", "xid", "mode", "alertstate"}
    details |= {"explained_by", "run_continues"}
    assert known["ALERTS"] - elsewhere - details - {"host"} == reported


def test_the_data_source_knows_how_often_prometheus_scrapes() -> None:
    folder = PROJECT / "grafana" / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    prometheus = yaml.safe_load((PROJECT / "rules" / "prometheus.yml").read_text())
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]
    assert source["type"] == "prometheus"
    assert source["isDefault"]


def test_boards_are_provisioned_into_a_folder_of_their_own() -> None:
    folder = PROJECT / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards" / "trainwarden.yml").read_text())[
        "providers"
    ]
    assert (provider["type"], provider["folder"]) == ("file", "Trainwarden")
    assert provider["allowUiUpdates"] is False


def test_grafana_in_containers_finds_its_boards_its_home_and_prometheus() -> None:
    services = yaml.safe_load((PROJECT / "docker-compose.yml").read_text())["services"]
    grafana, prometheus = services["grafana"], services["prometheus"]
    mounts = {volume.split(":")[1]: volume.split(":")[0] for volume in grafana["volumes"]}
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (PROJECT / mounts[str(home.parent)] / home.name).is_file()
    provisioning = PROJECT / mounts["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "trainwarden.yml").read_text())[
        "providers"
    ]
    assert provider["options"]["path"] == str(home.parent)
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    url = urlsplit(source["url"])
    assert f"{url.hostname}:127.0.0.1" in grafana["extra_hosts"]
    assert f"--web.listen-address=127.0.0.1:{url.port}" in prometheus["command"]
