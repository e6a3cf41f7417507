from __future__ import annotations

from pathlib import Path

import pytest

import rendering

PORTS = {
    "exporter": 1001,
    "remediator": 1002,
    "prometheus": 1003,
    "alertmanager": 1004,
    "inference": 1005,
}


def test_places_are_filled_in_and_quoted() -> None:
    text = "name: '${name}'  # ${…} and $5 stay"
    filled = rendering.fill(text, {"name": "it's"}, rendering.single_quoted)
    assert filled == "name: 'it''s'  # ${…} and $5 stay"


def test_an_unknown_place_is_an_error() -> None:
    with pytest.raises(KeyError, match="nmae"):
        rendering.fill("${nmae}", {"name": ""}, str)


def test_usual_ports_are_replaced_wherever_they_stand() -> None:
    shipped = {"a": [{"targets": ["127.0.0.1:10977"]}], "url": "http://127.0.0.1:10978/webhook"}
    assert rendering.with_ports(shipped, PORTS) == {
        "a": [{"targets": ["127.0.0.1:1001"]}],
        "url": "http://127.0.0.1:1002/webhook",
    }


def test_other_ports_hosts_and_values_stay() -> None:
    other = {"x": "127.0.0.1:109771", "y": "10.0.0.1:9090", "z": 9090, "none": None}
    assert rendering.with_ports(other, PORTS) == other


def test_paths_become_absolute_but_for_the_token() -> None:
    shipped = {
        "rule_files": ["alerts/*.yml"],
        "slack": {"api_url_file": "secrets/slack"},
        "authorization": {"credentials_file": rendering.TOKEN_FILE},
        "other": "alerts/*.yml",
    }
    assert rendering.with_absolute_paths(shipped, Path("/rules")) == {
        "rule_files": ["/rules/alerts/*.yml"],
        "slack": {"api_url_file": "/rules/secrets/slack"},
        "authorization": {"credentials_file": "secrets/webhook-token"},
        "other": "alerts/*.yml",
    }


def test_a_demo_process_is_started_by_supervisord_and_not_started_again() -> None:
    process = {"start": ["/a b/python", "x.py", "100%"], "cwd": "/50%", "log": "logs/x.log"}
    section = rendering.program({"worker": "rollout-0", "process": process}, Path("/run"))
    assert "[program:rollout-0]" in section
    assert "command='/a b/python' x.py 100%%\n" in section
    assert "directory=/50%%\n" in section
    assert "stdout_logfile=/run/logs/x.log\n" in section
    assert "autorestart=false\n" in section
