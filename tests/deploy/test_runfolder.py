from __future__ import annotations

import json
import os
import re
import socket
import stat
import subprocess
from pathlib import Path

import pytest

import ports
import runfolder
from ruleset import RULES
from stack import Binaries, StackError
from trainwarden_remediator.config.schema import load_setup

EXPORTER = "runs: [{name: r, workers: [{name: w, match: {command: train}}]}]\n"


def prepare_demo(folder: Path, binaries: Binaries) -> runfolder.RunFolder:
    return runfolder.prepare_demo(folder, binaries, mode="act", any_free=True)


def prepare_own(folder: Path, config: Path, binaries: Binaries) -> runfolder.RunFolder:
    return runfolder.prepare_own(folder, config, binaries, mode="observe", any_free=True)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    (folder / "exporter.yml").write_text(EXPORTER)
    return folder


def test_the_demos_files_are_valid_and_agree(tmp_path: Path, binaries: Binaries) -> None:
    run = prepare_demo(tmp_path / "it's a run", binaries)
    setup = load_setup(run.remediator_file)
    assert {key.worker for key in setup.selectors} == set(run.demo)
    assert [target.worker for target in setup.config.targets] == list(run.demo)
    assert setup.config.exporter.url == run.url("exporter")
    assert setup.config.alertmanager.url == run.url("alertmanager")
    assert setup.config.mode == "act"
    assert setup.config.token_file == run.path / "secrets" / "webhook-token"
    assert "--token.renew" in run.supervisord_file.read_text()


def test_no_other_account_can_write_what_was_made_whatever_the_umask(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    before = os.umask(0o002)
    try:
        shared = tmp_path / "shared"
        shared.mkdir()
        for folder in (tmp_path / "run", shared):
            prepare_own(folder, config, binaries)
            prepare_demo(tmp_path / "demo", binaries)
        assert os.umask(0o002) == 0o002
    finally:
        os.umask(before)
    made = [
        path
        for folder in ("run", "shared", "demo")
        for path in (tmp_path / folder).rglob("*")
        if not path.is_symlink() and path.stat().st_mode & 0o022
    ]
    assert made == []
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700


def test_the_tools_accept_what_was_made_of_the_shipped_rules(
    tmp_path: Path, binaries: Binaries
) -> None:
    run = prepare_demo(tmp_path / "run", binaries)
    prometheus = (binaries.promtool, "check", "config", run.path / "prometheus.yml")
    result = subprocess.run(prometheus, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "SUCCESS: 0 rule files" not in result.stdout
    assert f"127.0.0.1:{run.ports['exporter']}" in (run.path / "prometheus.yml").read_text()
    alertmanager = (binaries.amtool, "check-config", run.path / "alertmanager.yml")
    assert subprocess.run(alertmanager, capture_output=True, check=False).returncode == 0
    assert f"{run.url('remediator')}/webhook" in (run.path / "alertmanager.yml").read_text()


def test_the_token_is_fresh_and_for_its_owner_alone(tmp_path: Path, binaries: Binaries) -> None:
    tokens = set()
    for _ in range(2):
        path = prepare_demo(tmp_path / "run", binaries).path / "secrets" / "webhook-token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        tokens.add(path.read_text())
    assert len(tokens) == 2


def test_an_earlier_demo_is_cleared_away(tmp_path: Path, binaries: Binaries) -> None:
    run = prepare_demo(tmp_path / "run", binaries)
    left = run.path / "demo" / "checkpoints"
    left.mkdir(parents=True)
    prepare_demo(tmp_path / "run", binaries)
    assert not left.exists()


@pytest.mark.parametrize("beside", ["supervisord.conf", "ports.json", "notes"])
def test_a_folder_of_something_else_is_not_cleared(
    tmp_path: Path, binaries: Binaries, beside: str
) -> None:
    (tmp_path / "thesis.tex").write_text("\\documentclass")
    (tmp_path / beside).write_text("[supervisord]\n")
    with pytest.raises(StackError, match="holds something else"):
        prepare_demo(tmp_path, binaries)
    assert (tmp_path / "thesis.tex").exists()


def test_a_path_too_long_for_a_socket_is_reported(tmp_path: Path, binaries: Binaries) -> None:
    with pytest.raises(StackError, match="too long a path"):
        prepare_demo(tmp_path / ("x" * 90), binaries)


def test_an_own_run_without_a_remediator_file_is_observed(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    run = prepare_own(tmp_path / "run", config, binaries)
    settings = load_setup(run.remediator_file).config
    assert settings.mode == "observe"
    assert settings.exporter.config == run.exporter_file == config / "exporter.yml"
    assert settings.targets == ()
    assert run.demo == ()
    assert "--mode=observe" in run.supervisord_file.read_text()
    assert f"--remediator.url={run.url('remediator')}" in run.supervisord_file.read_text()


def test_a_file_that_is_made_has_the_mode_of_the_command_line(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    run = runfolder.prepare_own(tmp_path / "run", config, binaries, mode="act", any_free=True)
    assert load_setup(run.remediator_file).config.mode == "act"  # `trainwarden report` reads it


def test_the_demo_keeps_receivers_and_nothing_else(tmp_path: Path, binaries: Binaries) -> None:
    run = prepare_demo(tmp_path / "run", binaries)
    with run.remediator_file.open("a") as file:
        file.write("notify: {receivers: [{name: a, kind: ntfy, url: 'https://ntfy.sh/x'}]}\n")
    run = prepare_demo(tmp_path / "run", binaries)
    assert [one.name for one in load_setup(run.remediator_file).config.notify.receivers] == ["a"]
    run.remediator_file.write_text("of: another version\n")
    run = prepare_demo(tmp_path / "run", binaries)
    assert load_setup(run.remediator_file).config.notify.receivers == ()


def test_without_a_configuration_the_receivers_of_before_are_kept(
    tmp_path: Path, binaries: Binaries
) -> None:
    """An operator has completed the file that `up` has made."""
    folder = tmp_path / "run"
    made = runfolder.prepare_announced(folder, binaries, mode="observe", any_free=True)
    with made.remediator_file.open("a") as file:
        file.write("notify:\n  receivers:\n    - {name: a, kind: ntfy, url: 'https://ntfy.sh/x'}\n")
    for _ in range(2):
        made = runfolder.prepare_announced(folder, binaries, mode="observe", any_free=True)
        settings = load_setup(made.remediator_file).config
        assert [one.name for one in settings.notify.receivers] == ["a"]
        assert settings.exporter.url == made.url("exporter")
    made.remediator_file.write_text("notify: {receivers: 1}")
    with pytest.raises(StackError, match=r"remediator.yml:1: "):
        runfolder.prepare_announced(folder, binaries, mode="observe", any_free=True)
    assert made.remediator_file.read_text() == "notify: {receivers: 1}"


def test_a_mistake_in_receivers_alone_has_its_line_in_the_file_of_the_operator(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    file = config / "remediator.yml"
    file.write_text(
        "# mine\nnotify:\n  receivers:\n    - {name: a, kind: ntfi, url: 'https://x/y'}\n"
    )
    with pytest.raises(StackError) as raised:
        prepare_own(tmp_path / "run", config, binaries)
    assert str(raised.value).startswith(f"{file}:4: ")


@pytest.mark.parametrize("with_exporter", [True, False])
def test_a_file_with_receivers_alone_gets_what_it_lacks(
    tmp_path: Path, config: Path, binaries: Binaries, *, with_exporter: bool
) -> None:
    if not with_exporter:
        (config / "exporter.yml").unlink()
    receivers = "notify: {receivers: [{name: phone, kind: ntfy, url: 'https://ntfy.sh/t-1'}]}\n"
    (config / "remediator.yml").write_text(receivers)
    for _ in range(2):
        run = prepare_own(tmp_path / "run", config, binaries)
        setup = load_setup(run.remediator_file)
        assert [one.name for one in setup.config.notify.receivers] == ["phone"]
        assert setup.config.token_file == run.path / "secrets" / "webhook-token"
        assert setup.config.exporter.url == run.url("exporter")
        assert (run.exporter_file.parent == config) == with_exporter
        assert f"# Copied from {config}/remediator.yml: change" in run.remediator_file.read_text()
    assert (config / "remediator.yml").read_text() == receivers


def test_an_own_remediator_file_is_used_where_it_lies(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    free = ports.choose(any_free=True)
    own = config / "remediator.yml"
    own.write_text(
        "token_file: token\n"
        f"exporter: {{url: 'http://127.0.0.1:{free['exporter']}'}}\n"
        f"alertmanager: {{url: 'http://127.0.0.1:{free['alertmanager']}'}}\n"
    )
    (config / "token").write_text("\nfirst\nsecond\n")
    run = prepare_own(tmp_path / "run", config, binaries)
    assert run.remediator_file == own
    assert run.ports["exporter"] == free["exporter"]
    assert run.ports["alertmanager"] == free["alertmanager"]
    assert (run.path / "secrets" / "webhook-token").read_text() == "first\n"
    assert "--token.renew" not in run.supervisord_file.read_text()


def test_a_token_file_that_is_named_but_missing_is_made(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    (config / "remediator.yml").write_text("token_file: token\nexporter: {}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runfolder, "fixed_ports", lambda _: {})
        run = prepare_own(tmp_path / "run", config, binaries)
    made = (config / "token").read_text()
    assert len(made) > 32
    assert (run.path / "secrets" / "webhook-token").read_text() == made


def test_a_port_that_the_own_file_names_and_another_uses_is_one_clear_line(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (config / "remediator.yml").write_text(
            f"insecure: true\nexporter: {{url: 'http://127.0.0.1:{port}'}}\n"
        )
        with pytest.raises(StackError) as refused:
            prepare_own(tmp_path / "run", config, binaries)
    assert str(refused.value) == (
        f"port {port} is in use, and {config}/remediator.yml has the exporter there: end the "
        "program that listens on it, or set exporter.url to another port"
    )


def test_a_wrong_configuration_is_reported_with_its_line(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    receiver = "{name: phone, kind: ntfy, ulr: 'https://ntfy.sh/x'}"
    (config / "remediator.yml").write_text(f"insecure: true\nnotify: {{receivers: [{receiver}]}}\n")
    mistake = r"remediator\.yml:2: notify\.receivers\[0\]\.ulr: unknown key \(did you mean url\?\)"
    with pytest.raises(StackError, match=mistake):
        prepare_own(tmp_path / "run", config, binaries)


def test_changes_to_alerts_in_the_users_folder_are_what_prometheus_loads(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    run = prepare_own(tmp_path / "run", config, binaries)
    assert str(RULES / "alerts") in (run.path / "prometheus.yml").read_text()

    (config / "overrides.yml").write_text("alerts: [{alert: TrainingGpuIdle, enabled: false}]\n")
    run = prepare_own(tmp_path / "run", config, binaries)
    check = (binaries.promtool, "check", "config", run.path / "prometheus.yml")
    result = subprocess.run(check, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    loaded = re.findall(r"Checking (\S+/alerts/\S+\.yml)$", result.stdout, re.MULTILINE)
    assert len(loaded) == len(list((RULES / "alerts").glob("*.yml")))
    text = "".join(Path(file).read_text() for file in loaded)
    assert "- alert: TrainingGpuXid" in text
    assert "- alert: TrainingGpuIdle" not in text


def test_wrong_changes_to_alerts_are_reported_with_their_line(
    tmp_path: Path, config: Path, binaries: Binaries
) -> None:
    (config / "overrides.yml").write_text("alerts:\n  - {alert: TrainingGpu, enabled: false}\n")
    with pytest.raises(StackError, match=r"overrides\.yml:2: .*no shipped alert is called"):
        prepare_own(tmp_path / "run", config, binaries)


def test_a_folder_keeps_its_ports(tmp_path: Path, config: Path, binaries: Binaries) -> None:
    first = prepare_demo(tmp_path / "run", binaries)
    assert prepare_demo(tmp_path / "run", binaries).ports == first.ports
    first = prepare_own(tmp_path / "own", config, binaries)
    assert prepare_own(tmp_path / "own", config, binaries).ports == first.ports


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"exporter": 70000}', "\0"])
def test_ports_that_cannot_be_read_are_chosen_again(tmp_path: Path, content: str) -> None:
    known = dict.fromkeys(ports.USUAL, 8000)
    (tmp_path / ports.FILE).write_text(json.dumps(known))
    assert ports.read(tmp_path) == known
    wrong = json.dumps(known | json.loads(content)) if content.startswith('{"') else content
    (tmp_path / ports.FILE).write_text(wrong)
    assert ports.read(tmp_path) == {}
