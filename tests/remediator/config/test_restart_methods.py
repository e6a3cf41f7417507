"""By which means a target may be acted upon, as the configuration gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from trainwarden_exporter.exceptions import ConfigError
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_remediator.actions import action_for
from trainwarden_remediator.actions.descendants import DescendantTracker
from trainwarden_remediator.actions.docker import DockerAction
from trainwarden_remediator.actions.process import ProcessAction
from trainwarden_remediator.actions.supervisor import SupervisorAction
from trainwarden_remediator.actions.systemd import SystemdAction
from trainwarden_remediator.config.restart_methods.base import refuse_protected
from trainwarden_remediator.config.schema import Setup, load_setup
from trainwarden_remediator.config.targets import RESTART_METHODS, Target

RANKS = tuple(f"rank-{number}" for number in range(8))
EXPORTER = {
    "runs": [
        {"name": "demo", "workers": [{"name": n, "match": {"command": n}} for n in RANKS]},
    ]
}
ONE = {
    "process": {"start": ["true"]},
    "systemd": {"unit": "train@0.service"},
    "docker": {"container": "pod"},
    "supervisor": {"program": "ranks:rank-0"},
}


class NoRecords:
    def save_descendants(self, boot: str, descendants_by_root: Any) -> None:
        pass

    def load_descendants(self, boot: str) -> dict[Any, Any]:
        del boot
        return {}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "exporter.yml").write_text(yaml.safe_dump(EXPORTER))
    return tmp_path


def loaded(folder: Path, text: str) -> Setup:
    (folder / "remediator.yml").write_text(f"insecure: true\ntargets:\n{text}")
    return load_setup(folder / "remediator.yml")


@pytest.mark.parametrize(
    ("restart_method", "kind"),
    [
        ("process", ProcessAction),
        ("systemd", SystemdAction),
        ("docker", DockerAction),
        ("supervisor", SupervisorAction),
    ],
)
def test_each_means_has_its_action(folder: Path, restart_method: str, kind: type) -> None:
    setup = loaded(
        folder, f"- {{run: demo, worker: rank-0, {restart_method}: {ONE[restart_method]}}}\n"
    )
    (target,) = setup.config.targets
    action = action_for(target, setup, DescendantTracker(NoRecords()))
    assert type(action) is kind
    assert action.grace == target.restart_method.grace
    assert target.restart_method.summary


PROBLEMS = [
    ("- {run: demo, worker: rank-0}\n", ":3: targets[0]: no restart method; set exactly one of"),
    (
        "- run: demo\n  worker: rank-0\n  process: {start: [a]}\n  docker: {container: pod}\n",
        ":6: targets[0].docker: both process and docker are set; set exactly one of",
    ),
    (
        (
            "- {run: demo, worker: rank-0, docker: {container: pod},"
            " additional_workers: [rank-1, rank-9]}\n"
        ),
        ":3: targets[0].additional_workers[1]: run demo has no worker rank-9",
    ),
    (
        (
            "- {run: demo, worker: rank-0, docker: {container: pod},"
            " additional_workers: [rank-1, rank-0]}\n"
        ),
        ":3: targets[0].additional_workers[1]: duplicate worker rank-0",
    ),
    (
        (
            "- {run: demo, worker: rank-0, docker: {container: pod},"
            " additional_workers: [rank-1]}\n"
            "- {run: demo, worker: rank-1, docker: {container: other}}\n"
        ),
        ":4: targets[1]: a second target for worker rank-1",
    ),
    (
        (
            "- {run: demo, worker: rank-0, docker: {container: pod}}\n"
            "- {run: demo, worker: rank-1, docker: {container: pod}}\n"
        ),
        (
            ":4: targets[1]: a second target that restarts container pod: "
            "name its workers with `additional_workers`"
        ),
    ),
    (
        "- {run: demo, worker: rank-0, supervisor: {program: a, url: 'http://far:9'}}\n",
        ":3: targets[0].supervisor.url: ",
    ),
    (
        "- {run: demo, worker: rank-0, supervisor: {program: a, username: u}}\n",
        ":3: targets[0].supervisor.username: username and password_file must be set together",
    ),
    (
        (
            "- {run: demo, worker: rank-0, supervisor: {program: a, socket: s,"
            " url: 'http://127.0.0.1:9'}}\n"
        ),
        ":3: targets[0].supervisor.url: set either socket or url",
    ),
]


@pytest.mark.parametrize(
    ("text", "message"), PROBLEMS, ids=[message[:40] for _, message in PROBLEMS]
)
def test_says_what_is_wrong_and_where(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text)
    file = folder / "remediator.yml"
    assert any(f"{file}{message}" in line for line in str(caught.value).splitlines()), caught.value


@pytest.mark.parametrize(
    "name",
    [
        *("prometheus", "alertmanager", "trainwarden-exporter", "trainwarden-remediator"),
        *("box-prometheus-1", "box_alertmanager_2", "main-exporter-1", "remediator"),
        *("prometheus.service", "prometheus-node-exporter.service", "ssh.service"),
        *("sshd@1.service", "systemd-journald.service", "docker.service", "containerd.service"),
        *("dbus.service", "init", "supervisord", "watch:prometheus", "user@1000.service"),
        *("kubelet.service", "slurmd.service", "trainwarden-prometheus.service", "Prometheus"),
    ],
)
def test_what_keeps_the_host_or_the_watch_alive_is_refused_as_a_target(name: str) -> None:
    with pytest.raises(ValueError, match="is protected"):
        refuse_protected(name)


@pytest.mark.parametrize(
    "name",
    [
        *("trainer", "rollout-0", "trainwarden-worker@rollout-0.service", "vllm-1", "sglang"),
        *("initialise.service", "docker-trainer", "exporter-of-data", "watch:rollout-0"),
    ],
)
def test_a_worker_is_not_taken_for_what_is_protected(name: str) -> None:
    assert refuse_protected(name) == name


@pytest.mark.parametrize(
    ("restart_method", "field", "protected"),
    [
        ("systemd", "unit", "prometheus.service"),
        ("docker", "container", "trainwarden-exporter"),
        ("supervisor", "program", "alertmanager"),
    ],
)
def test_a_protected_target_is_refused_when_the_file_is_read(
    folder: Path, restart_method: str, field: str, protected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(
            folder, f"- {{run: demo, worker: rank-0, {restart_method}: {{{field}: {protected}}}}}\n"
        )
    assert f":3: targets[0].{restart_method}.{field}: {protected} is protected" in str(caught.value)


HOSTILE = [
    *("-oProxyCommand=x.service", "a b.service", "a.service\n", "a;b.service", "$(x).service"),
    *("../a.service", "a/b.service", "a.service\0", "a.target", "a.slice", "a", "a@.service", ""),
    *("-.slice", "a.service --now", f"{'a' * 300}.service", "\N{RIGHT-TO-LEFT OVERRIDE}a.service"),
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_that_is_no_service_is_refused(name: str) -> None:
    for restart_method, field in (
        ("systemd", "unit"),
        ("docker", "container"),
        ("supervisor", "program"),
    ):
        message = name if restart_method == "systemd" else name.removesuffix(".service")
        if restart_method != "systemd" and message in ("a", "a@", "a.target", "a.slice"):
            continue
        content = {"run": "demo", "worker": "w", restart_method: {field: message}}
        with pytest.raises(ValidationError):
            Target.model_validate(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"process": {"start": ["/no/such"]}}, ["process.start: no such program: /no/such"]),
        ({"process": {"start": ["true"], "cwd": "/no"}}, ["process.cwd: no such directory: /no"]),
        ({"process": {"start": ["true"]}}, []),
        (
            {"docker": {"container": "pod", "socket": "/no"}},
            ["docker.socket: no Docker Engine listens"],
        ),
        (
            {"supervisor": {"program": "a", "socket": "/no"}},
            ["supervisor.socket: no supervisord listens"],
        ),
        (
            {
                "supervisor": {
                    "program": "a",
                    "url": "http://127.0.0.1:9",
                    "username": "u",
                    "password_file": "/no",
                }
            },
            ["supervisor.password_file: cannot be read: /no"],
        ),
    ],
)
def test_says_what_will_hardly_work_here(content: dict[str, Any], message: list[str]) -> None:
    restart_method = Target.model_validate({"run": "demo", "worker": "w", **content}).restart_method
    found = list(restart_method.warnings())
    assert len(found) == len(message)
    assert all(doubt.startswith(start) for doubt, start in zip(found, message, strict=True))


def test_every_means_is_a_field_of_a_target() -> None:
    assert set(RESTART_METHODS) <= Target.model_fields.keys()
    assert ONE.keys() <= set(RESTART_METHODS)


def test_all_its_workers_are_found_at_one_target(folder: Path) -> None:
    also = ", ".join(RANKS[1:])
    setup = loaded(
        folder,
        "- {run: demo, worker: rank-0, docker: {container: pod},"
        f" additional_workers: [{also}]}}\n",
    )
    (target,) = setup.config.targets
    assert [setup.config.target(WorkerKey("demo", name)) for name in RANKS] == [target] * 8
    assert target.key == WorkerKey("demo", "rank-0")
