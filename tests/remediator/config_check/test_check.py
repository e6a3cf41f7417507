"""What `check` finds when it holds the configuration against rules and Alertmanager's routes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.__main__ import main
from trainwarden_remediator.config.schema import load_setup
from trainwarden_remediator.config_check.check import weak_selectors
from trainwarden_remediator.config_check.routing import MatchResult, match_route, matched_routes
from trainwarden_remediator.config_check.rule_files import find_rules, parse_rules

PROJECT = Path(__file__).parents[3]

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
    user: root
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
  receiver: on-call
  routes:
    - matchers: ['alertname="TrainingWatchdog"']
      receiver: us
    - matchers: ['remediation!=""']
      receiver: us
      continue: true
    - matchers: ['severity="critical"']
      receiver: on-call
receivers:
  - name: on-call
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


def test_an_operator_sees_what_would_be_done_for_which_alert(
    config: Path, capsys: Captured
) -> None:
    assert check(config, routes(config)) == 0
    output = capsys.readouterr()
    table = output.out.split("\n\n")[2].splitlines()
    assert [line.split("  ")[0] for line in table] == ["alert", "Down", "", "Leaks"]
    assert "demo/server" in table[1]
    assert "up to 2 times restart it (process): /bin/true server" in table[1]
    assert "demo/trainer" in table[2]
    assert "if healed and no step: restart it (process): /bin/true trainer" in table[2]
    assert "demo/server" in table[3]
    assert "The mode is observe" in output.out
    assert output.err == ""


def test_a_playbook_that_does_not_exist_is_an_error_where_the_rule_names_it(
    config: Path, capsys: Captured
) -> None:
    edit(config, "rules.yml", "remediation: restart_inference", "remediation: restart_inferense")
    assert check(config) == 1
    output = capsys.readouterr()
    where = f"{config.parent / 'rules.yml'}:13: alert Down: labels.remediation"
    assert f"{where}: there is no playbook restart_inferense" in output.err
    assert "nothing: there is no such playbook" in output.out


def test_a_target_that_no_alert_leads_to_is_an_error(config: Path, capsys: Captured) -> None:
    edit(config, "rules.yml", "remediation: restart_inference", "team: mine")
    assert check(config) == 1
    (line,) = (one for one in capsys.readouterr().err.splitlines() if "no alert" in one)
    assert line.startswith(f"{config}:7: targets[1].worker: ")


def test_a_target_that_is_protected_is_an_error(config: Path, capsys: Captured) -> None:
    edit(config, "remediator.yml", "/bin/true, trainer", "/usr/sbin/sshd, -D")
    assert check(config) == 1
    assert f"{config}:8: targets[1].process.start: sshd is protected" in capsys.readouterr().err


def test_trainers_of_several_targets_are_noted_with_what_to_write(
    config: Path, capsys: Captured
) -> None:
    """The alert of a run that stalls names no worker; one of them alone would heal nothing."""
    edit(config, "exporter.yml", "{name: server,", "{name: server, role: trainer,")
    edit(config, "rules.yml", "remediation: restart_inference", "remediation: restart_stalled_run")
    edit(config, "rules.yml", "restart_leaking_worker", "start_missing_worker")
    assert check(config) == 0
    output = capsys.readouterr()
    where = f"note: {config}:3: targets[0]: "
    (line,) = (one for one in output.err.splitlines() if "trainers" in one)
    assert line.startswith(f"{where}server and trainer are trainers of several targets")
    assert "`additional_workers: [trainer]`" in line
    (step,) = (one for one in output.out.splitlines() if "restart_stalled_run" in one)
    assert step.endswith("nothing: no run has exactly one target with the role trainer")

    both = CONFIG[: CONFIG.rindex("  - run: demo")].replace(
        "worker: server", "worker: server\n    additional_workers: [trainer]"
    )
    config.write_text(both)
    assert check(config) == 0
    output = capsys.readouterr()
    assert "trainers" not in output.err
    (step,) = (one for one in output.out.splitlines() if "restart_stalled_run" in one)
    assert "restart it (process): /bin/true server" in step


def test_what_no_rule_names_and_no_target_serves_is_noted(config: Path, capsys: Captured) -> None:
    with config.open("a") as file:
        file.write("playbooks: {mine: {condition: missing}}\n")
    edit(config, "remediator.yml", CONFIG[CONFIG.index("  - run: demo\n    worker: trainer") :], "")
    assert check(config) == 0
    output = capsys.readouterr().err
    assert f"note: {config}:6: playbooks.mine: no rule names this playbook" in output
    assert (
        "rung 2 of playbook restart_inference is never tried: nothing: no run has exactly one"
        " target with the role trainer" in output
    )


def test_the_rungs_of_servers_are_left_out_where_no_run_has_a_server(
    config: Path, capsys: Captured
) -> None:
    edit(config, "exporter.yml", WATCHED[WATCHED.index("    inference:") :], "")
    check(config)
    output = capsys.readouterr()
    assert "never tried" not in output.err
    (line,) = (one for one in output.out.splitlines() if "restart_inference" in one)
    assert line.endswith("nothing: no run has a server")
    assert "if healed and no step" not in output.out


@pytest.mark.parametrize(
    ("change", "line", "output"),
    [
        (("10978", "10979"), 11, "no receiver has a webhook to port 10978"),
        (("/webhook\n", "/hook\n"), 11, "no receiver has a webhook"),
        (("- url:", "- send_resolved: false\n        url:"), 15, "send_resolved: true"),
        (("- url:", "- max_alerts: 5\n        url:"), 15, "max_alerts: 0"),
        (("authorization: {credentials_file: token}", "tls_config: {}"), 15, "sends no token"),
        (("credentials_file: token", "credentials: another-token-of-mine"), 16, "none of those"),
        (("credentials_file", "type: Basic, credentials_file"), 17, "must be Bearer"),
        (("'remediation!=\"\"'", "'remediation=\"other\"'"), 9, "Leaks is not routed"),
        (("'remediation!=\"\"'", "'remediation!=\"\"', 'run=\"x\"'"), 6, "Leaks is not routed"),
        (("TrainingWatchdog", "Watchdog"), 1, "TrainingWatchdog is not routed"),
    ],
)
def test_what_would_keep_alerts_away_is_an_error_with_its_line(
    config: Path, capsys: Captured, change: tuple[str, str], line: int, output: str
) -> None:
    edit(config, "alertmanager.yml", *change)
    assert check(config, routes(config)) == 1
    err = capsys.readouterr().err
    place, _, message = next(one for one in err.splitlines() if output in one).partition(": ")
    assert place == f"{config.parent / 'alertmanager.yml'}:{line}", message


def test_it_notes_that_the_on_call_is_paged_too_and_no_alert_is_redirected(
    config: Path, capsys: Captured
) -> None:
    edit(config, "alertmanager.yml", "      continue: true\n", "")
    edit(config, "alertmanager.yml", "          follow_redirects: false\n", "")
    assert check(config, routes(config)) == 0
    output = capsys.readouterr().err
    assert "only the remediator receives Down, Leaks" in output
    assert "receiver us follows redirects" in output


def test_it_listens_on_the_configured_address(config: Path) -> None:
    edit(config, "alertmanager.yml", "10978", "4711")
    assert check(config, routes(config)) == 1
    assert check(config, routes(config), "--web.listen-address=:4711") == 0


def repeated(content: str) -> str:
    """Returns lines of aliases that mean billions of values."""
    lines = ["l0: &l0 {receiver: x, continue: true}"]
    for number in range(1, 10):
        aliases = ", ".join([f"*l{number - 1}"] * 9)
        lines.append(f"l{number}: &l{number} {{{content.format(aliases)}}}")
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("name", "content", "output"),
    [
        ("rules.yml", "rules: 1\n", "rules.yml:1: groups: not a rule file"),
        ("rules.yml", "groups: [\n", "not YAML"),
        ("alertmanager.yml", "receivers: []\n", "route: missing"),
        ("alertmanager.yml", "route: {\n", "not YAML"),
        ("alertmanager.yml", "route: &a {receiver: x, routes: [*a]}\n", ":1: an alias refers"),
        ("alertmanager.yml", repeated("routes: [{}]") + "route: *l9\n", ":6: too large"),
        ("rules.yml", "groups: [&a {<<: *a}]\n", ":1: an alias refers"),
        ("rules.yml", repeated("<<: [{}]") + "groups: [*l9]\n", ":6: too large"),
    ],
)
def test_a_file_that_is_none_is_reported(
    config: Path, capsys: Captured, name: str, content: str, output: str
) -> None:
    (config.parent / name).write_text(content)
    assert check(config, routes(config)) == 1
    assert output in capsys.readouterr().err


def test_rules_are_those_named_or_those_beside_or_those_shipped(tmp_path: Path) -> None:
    config = tmp_path / "remediator.yml"
    shipped = find_rules(None, config)
    assert PROJECT / "rules" / "alerts" / "workers.yml" in shipped
    (tmp_path / "alerts").mkdir()
    (tmp_path / "alerts" / "a.yml").touch()
    assert find_rules(None, config) == [tmp_path / "alerts" / "a.yml"]
    assert find_rules(str(tmp_path / "al*" / "*.yml"), config) == [tmp_path / "alerts" / "a.yml"]
    with pytest.raises(ConfigError, match="no such rule file"):
        find_rules(str(tmp_path / "b*.yml"), config)


def test_what_is_shipped_fits_together(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "token").write_text("a-token-of-some-length\n")
    (tmp_path / "exporter.yml").write_text(WATCHED)
    (tmp_path / "remediator.yml").write_text(CONFIG)
    options = [f"--rules={PROJECT}/rules/alerts/*.yml"]
    options += [f"--alertmanager={PROJECT}/rules/alertmanager.yml"]
    assert main(["check", str(tmp_path / "remediator.yml"), *options]) == 0
    output = capsys.readouterr()
    assert "is not routed" not in output.err
    assert "TrainingWorkerGone" in output.out


def test_every_shipped_alert_that_names_a_playbook_is_read() -> None:
    path = PROJECT / "rules" / "alerts" / "workers.yml"
    found = {rule.name: rule.remediation for rule in parse_rules(path.read_text(), path)}
    assert found["TrainingWorkerGone"] == "start_missing_worker"


@pytest.mark.parametrize(
    ("route", "match"),
    [
        ({"matchers": ['a="1"']}, MatchResult.YES),
        ({"matchers": ["a=1", 'b!~"x|y"']}, MatchResult.YES),
        ({"matchers": '{a="1",b="2"}'}, MatchResult.NO),
        ({"matchers": ['a=~"[0-9]"']}, MatchResult.YES),
        ({"matchers": ['a=~"[0-9"']}, MatchResult.MAYBE),
        ({"match": {"a": "2"}}, MatchResult.NO),
        ({"match_re": {"a": "1|2"}}, MatchResult.YES),
        ({"matchers": ['run="x"']}, MatchResult.MAYBE),
        ({"matchers": ['run!=""']}, MatchResult.YES),
        ({"matchers": ['run=""']}, MatchResult.NO),
        ({"matchers": ['run="x"', 'a="2"']}, MatchResult.NO),
        ({"matchers": ['c="say \\"hi\\", you"']}, MatchResult.NO),
        ({}, MatchResult.YES),
    ],
)
def test_routes_match_as_alertmanagers_do(route: dict[str, object], match: MatchResult) -> None:
    assert match_route(route, {"a": "1"}) is match


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
    found = [(stop.receiver, stop.uncertain) for stop in matched_routes(tree, {"a": "1"})]
    assert found == [("first", False), ("perhaps", True), ("top", True)]
    assert [stop.receiver for stop in matched_routes(tree, {"a": "2"})] == ["perhaps", "never"]


def test_it_notes_selectors_whose_processes_another_account_could_choose(config: Path) -> None:
    file = config.parent / "exporter.yml"
    file.write_text(
        file.read_text()
        .replace("    user: root\n", "")
        .replace("command: no-such-t", "pid_file: /t")
    )
    setup = load_setup(config)
    server, trainer = weak_selectors(config, setup, as_root=True)
    assert "targets[0]: `match` of server names no account" in server
    assert "targets[1]: `match` of trainer has only a pid file" in trainer
    assert list(weak_selectors(config, setup, as_root=False)) == [trainer]
