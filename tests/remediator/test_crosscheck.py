"""What `check` finds when it holds the configuration against rules and Alertmanager's routes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.__main__ import main
from trainwarden_remediator.crosscheck.routing import Match, meets, stops
from trainwarden_remediator.crosscheck.rulefiles import find_rules, parse_rules

PROJECT = Path(__file__).parents[2]

CONFIG = """\
token_file: token
targets:
  - run: demo
    worker: server
    process: {start: [/bin/true, server]}
  - run: demo
    worker: trainer
    process: {start: [/bin/true, trainer]}
"""
WATCHED = """\
runs:
  - name: demo
    workers:
      - {name: server, match: {command: no-such-server}, memory_limit: 1GiB}
      - {name: trainer, role: trainer, match: {command: no-such-trainer}}
    inference:
      - {name: s, engine: vllm, url: 'http://127.0.0.1:1', worker: server}
"""
RULES = """\
groups:
  - name: mine
    rules:
      - record: a:b
        expr: up
      - alert: Leaks
        expr: up == {{ 0 }}
        labels: {severity: critical, remediation: restart_leaking_worker}
      - alert: Down
        expr: up == 0
        labels:
          severity: critical
          remediation: restart_inference
      - alert: Untreated
        expr: up == 0
"""
ALERTMANAGER = """\
route:
  receiver: person
  routes:
    - matchers: ['alertname="TrainingWatchdog"']
      receiver: us
    - matchers: ['remediation!=""']
      receiver: us
      continue: true
    - matchers: ['severity="critical"']
      receiver: person
receivers:
  - name: person
  - name: us
    webhook_configs:
      - url: http://127.0.0.1:10978/webhook
        http_config:
          authorization: {credentials_file: token}
          follow_redirects: false
"""
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("a-token-of-some-length\n")
    (tmp_path / "exporter.yml").write_text(WATCHED)
    (tmp_path / "remediator.yml").write_text(CONFIG)
    (tmp_path / "rules.yml").write_text(RULES)
    (tmp_path / "alertmanager.yml").write_text(ALERTMANAGER)
    return tmp_path / "remediator.yml"


def check(config: Path, *options: str) -> int:
    return main(["check", str(config), f"--rules={config.parent / 'rules.yml'}", *options])


def routes(config: Path) -> str:
    return f"--alertmanager={config.parent / 'alertmanager.yml'}"


def edit(config: Path, name: str, before: str, after: str) -> None:
    path = config.parent / name
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))


def test_a_person_sees_what_would_be_done_for_which_alert(config: Path, capsys: Captured) -> None:
    assert check(config, routes(config)) == 0
    said = capsys.readouterr()
    table = said.out.split("\n\n")[2].splitlines()
    assert [line.split("  ")[0] for line in table] == ["alert", "Down", "", "Leaks"]
    assert "demo/server" in table[1]
    assert "up to 2 times restart it (process): /bin/true server" in table[1]
    assert "demo/trainer" in table[2]
    assert "if healed and no step: restart it (process): /bin/true trainer" in table[2]
    assert "demo/server" in table[3]
    assert "The mode is observe" in said.out
    assert said.err == ""


def test_a_playbook_that_does_not_exist_is_an_error_where_the_rule_names_it(
    config: Path, capsys: Captured
) -> None:
    edit(config, "rules.yml", "remediation: restart_inference", "remediation: restart_inferense")
    assert check(config) == 1
    said = capsys.readouterr()
    where = f"{config.parent / 'rules.yml'}:13: alert Down: labels.remediation"
    assert f"{where}: there is no playbook restart_inferense" in said.err
    assert "nothing: there is no such playbook" in said.out


def test_a_target_that_no_alert_leads_to_is_an_error(config: Path, capsys: Captured) -> None:
    edit(config, "rules.yml", "remediation: restart_inference", "team: mine")
    assert check(config) == 1
    (line,) = (one for one in capsys.readouterr().err.splitlines() if "no alert" in one)
    assert line.startswith(f"{config}:7: targets[1].worker: ")


def test_a_target_that_is_protected_is_an_error(config: Path, capsys: Captured) -> None:
    edit(config, "remediator.yml", "/bin/true, trainer", "/usr/sbin/sshd, -D")
    assert check(config) == 1
    assert f"{config}:8: targets[1].process.start: sshd is protected" in capsys.readouterr().err


def test_what_no_rule_names_and_no_target_serves_is_noted(config: Path, capsys: Captured) -> None:
    with config.open("a") as file:
        file.write("playbooks: {mine: {trouble: missing}}\n")
    edit(config, "remediator.yml", CONFIG[CONFIG.index("  - run: demo\n    worker: trainer") :], "")
    assert check(config) == 0
    said = capsys.readouterr().err
    assert f"note: {config}:6: playbooks.mine: no rule names it" in said
    assert (
        "rung 2 of playbook restart_inference is never tried: nothing: no target is a trainer"
        in said
    )


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("10978", "10979"), 11, "no receiver has a webhook to port 10978"),
        (("/webhook\n", "/hook\n"), 11, "no receiver has a webhook"),
        (("- url:", "- send_resolved: false\n        url:"), 15, "send_resolved: true"),
        (("- url:", "- max_alerts: 5\n        url:"), 15, "max_alerts: 0"),
        (("authorization: {credentials_file: token}", "tls_config: {}"), 15, "carries no token"),
        (("credentials_file: token", "credentials: another-token-of-mine"), 16, "none of those"),
        (("credentials_file", "type: Basic, credentials_file"), 17, "must be Bearer"),
        (("'remediation!=\"\"'", "'remediation=\"other\"'"), 9, "Leaks does not come"),
        (("'remediation!=\"\"'", "'remediation!=\"\"', 'run=\"x\"'"), 6, "Leaks does not come"),
        (("TrainingWatchdog", "Watchdog"), 1, "TrainingWatchdog does not come"),
    ],
)
def test_what_would_keep_alerts_away_is_an_error_with_its_line(
    config: Path, capsys: Captured, change: tuple[str, str], line: int, said: str
) -> None:
    edit(config, "alertmanager.yml", *change)
    assert check(config, routes(config)) == 1
    err = capsys.readouterr().err
    place, _, message = next(one for one in err.splitlines() if said in one).partition(": ")
    assert place == f"{config.parent / 'alertmanager.yml'}:{line}", message


def test_that_a_person_hears_too_and_nothing_is_redirected_is_noted(
    config: Path, capsys: Captured
) -> None:
    edit(config, "alertmanager.yml", "      continue: true\n", "")
    edit(config, "alertmanager.yml", "          follow_redirects: false\n", "")
    assert check(config, routes(config)) == 0
    said = capsys.readouterr().err
    assert "nobody but the remediator hears of Down, Leaks" in said
    assert "receiver us follows redirects" in said


def test_it_listens_where_it_is_told_to(config: Path) -> None:
    edit(config, "alertmanager.yml", "10978", "4711")
    assert check(config, routes(config)) == 1
    assert check(config, routes(config), "--web.listen-address=:4711") == 0


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rules.yml", "rules: 1\n", "rules.yml:1: groups: not a file of rules"),
        ("rules.yml", "groups: [\n", "not YAML"),
        ("alertmanager.yml", "receivers: []\n", "route: required"),
        ("alertmanager.yml", "route: {\n", "not YAML"),
    ],
)
def test_a_file_that_is_none_is_told(
    config: Path, capsys: Captured, name: str, content: str, said: str
) -> None:
    (config.parent / name).write_text(content)
    assert check(config, routes(config)) == 1
    assert said in capsys.readouterr().err


def test_rules_are_those_named_or_those_beside_or_those_shipped(tmp_path: Path) -> None:
    config = tmp_path / "remediator.yml"
    shipped = find_rules(None, config)
    assert PROJECT / "rules" / "alerts" / "workers.yml" in shipped
    (tmp_path / "alerts").mkdir()
    (tmp_path / "alerts" / "a.yml").touch()
    assert find_rules(None, config) == [tmp_path / "alerts" / "a.yml"]
    assert find_rules(str(tmp_path / "al*" / "*.yml"), config) == [tmp_path / "alerts" / "a.yml"]
    with pytest.raises(ConfigError, match="no such file"):
        find_rules(str(tmp_path / "b*.yml"), config)


def test_what_is_shipped_fits_together(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "token").write_text("a-token-of-some-length\n")
    (tmp_path / "exporter.yml").write_text(WATCHED)
    (tmp_path / "remediator.yml").write_text(CONFIG)
    options = [f"--rules={PROJECT}/rules/alerts/*.yml"]
    options += [f"--alertmanager={PROJECT}/rules/alertmanager.yml"]
    assert main(["check", str(tmp_path / "remediator.yml"), *options]) == 0
    said = capsys.readouterr()
    assert "does not come" not in said.err
    assert "TrainingWorkerGone" in said.out


def test_every_shipped_alert_that_names_a_playbook_is_read() -> None:
    path = PROJECT / "rules" / "alerts" / "workers.yml"
    found = {rule.name: rule.remediation for rule in parse_rules(path.read_text(), path)}
    assert found["TrainingWorkerGone"] == "start_missing_worker"


@pytest.mark.parametrize(
    ("route", "match"),
    [
        ({"matchers": ['a="1"']}, Match.YES),
        ({"matchers": ["a=1", 'b!~"x|y"']}, Match.YES),
        ({"matchers": '{a="1",b="2"}'}, Match.NO),
        ({"matchers": ['a=~"[0-9]"']}, Match.YES),
        ({"matchers": ['a=~"[0-9"']}, Match.MAYBE),
        ({"match": {"a": "2"}}, Match.NO),
        ({"match_re": {"a": "1|2"}}, Match.YES),
        ({"matchers": ['run="x"']}, Match.MAYBE),
        ({"matchers": ['run!=""']}, Match.YES),
        ({"matchers": ['run=""']}, Match.NO),
        ({"matchers": ['run="x"', 'a="2"']}, Match.NO),
        ({"matchers": ['c="say \\"hi\\", you"']}, Match.NO),
        ({}, Match.YES),
    ],
)
def test_routes_match_as_alertmanagers_do(route: dict[str, object], match: Match) -> None:
    assert meets(route, {"a": "1"}) is match


def test_a_route_that_takes_an_alert_ends_the_way_unless_it_continues() -> None:
    tree = {
        "receiver": "top",
        "routes": [
            {"matchers": ["a=1"], "receiver": "first", "continue": True},
            {"matchers": ["run=x"], "receiver": "perhaps"},
            {"matchers": ["a=1"], "routes": [{"matchers": ["b=2"], "receiver": "deep"}]},
            {"receiver": "never"},
        ],
    }
    found = [(stop.receiver, stop.doubtful) for stop in stops(tree, {"a": "1"})]
    assert found == [("first", False), ("perhaps", True), ("top", True)]
    assert [stop.receiver for stop in stops(tree, {"a": "2"})] == ["perhaps", "never"]
