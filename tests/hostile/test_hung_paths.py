"""Every path of both files on a mount that never answers."""

from __future__ import annotations

import json
import time
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.hostile.hung_mount import hung_mount
from tests.hostile.programs import EXPORTER, REMEDIATOR, Program, write_config
from tests.waiting import until

from trainwarden_exporter.config import Config as ExporterConfig
from trainwarden_remediator.config.schema import Config as RemediatorConfig

HEALTH_SECONDS = 10.0
"""A tenth of a second is usual; on a machine that does other work too, this is no hang."""

NOWHERE = "127.0.0.1:9"
TLS = {"url": f"https://{NOWHERE}", "tls": {"ca_file": "ON MOUNT"}}
CLIENT_TLS = dict.fromkeys(("ca_file", "cert_file", "key_file"), "ON MOUNT")

SERVER = {"name": "server", "engine": "vllm"}

NIGHT = {
    "name": "night",
    "path": "ON MOUNT",
    "framework": "trl",
    "copies": "ON MOUNT",
    "workers": [
        {"name": "filed", "match": {"pid_file": "ON MOUNT"}},
        {"name": "beside", "match": {"cwd": "ON MOUNT", "command": "no-such-program"}},
    ],
    "containers": [{"name": "box", "self": True, "exit_file": "ON MOUNT"}],
    "inference": [
        {"name": "server", "engine": "vllm", "url": f"http://{NOWHERE}", "api_key_file": "ON MOUNT"}
    ],
    "logs": [{"name": "other", "files": ["other.log"]}],
    "checkpoints": [
        {"name": "other", "folder": "other", "entry": r"step_(?P<step>\d+)"}
        | {"complete": {"renamed": True}}
    ],
    "rollouts": [
        {"name": "other", "folder": "batches", "entry": r"step_(?P<step>\d+)"}
        | {"complete": {"renamed": True}}
    ],
}
EXPORTER_FILE = {
    "beats_folder": "ON MOUNT",
    "disks": [{"path": "ON MOUNT", "probe": {}}],
    "docker": {"socket": "ON MOUNT"},
    "gpu": {"device_root": "ON MOUNT"},
    "heartbeats": [{"name": "cron", "file": "ON MOUNT"}],
    "host": {"cgroup": "ON MOUNT"},
    "runs_folder": "ON MOUNT",
    "state_folder": "ON MOUNT",
    "runs": [NIGHT],
}
EXPORTER_READS_AT_START = {
    "remediator.tls.ca_file": {"remediator": TLS},
    "runs.inference.tls.ca_file": {
        "runs": [{"name": "night", "inference": [{"name": "server", "engine": "vllm", **TLS}]}]
    },
}

METHODS: Mapping[str, Mapping[str, Any]] = {
    "command": {"restart": ["true"], "cwd": "ON MOUNT", "log": "ON MOUNT"},
    "docker": {"container": "trainer", "socket": "ON MOUNT"},
    "kubernetes": {"namespace": "runs", "pod": "trainer", "url": f"https://{NOWHERE}"}
    | {"token_file": "ON MOUNT", "ca_file": "ON MOUNT"},
    "process": {"start": ["true"], "cwd": "ON MOUNT", "log": "ON MOUNT"},
    "slurm": {"job": "trainer", "programs": "ON MOUNT", "conf": "ON MOUNT"},
    "supervisor": {"program": "trainer", "socket": "ON MOUNT"},
    "supervisor by url": {"program": "other", "url": f"http://{NOWHERE}"}
    | {"username": "trainer", "password_file": "ON MOUNT"},
}
REMEDIATOR_FILE = {
    "token_file": "token",
    "journal": "state/journal.db",
    "hold_file": "ON MOUNT",
    "exporter": {"url": f"https://{NOWHERE}", "config": "exporter.yml", "tls": CLIENT_TLS}
    | {"token_file": "ON MOUNT"},
    "alertmanager": {"url": f"https://{NOWHERE}", "tls": CLIENT_TLS}
    | {"basic_auth": {"username": "trainer", "password_file": "ON MOUNT"}},
    "notify": {
        "receivers": [
            {"name": "phone", "kind": "ntfy", "url_file": "ON MOUNT", "token_file": "ON MOUNT"}
        ]
    },
    "targets": [
        {"run": "night", "worker": f"worker-{number}", name.split()[0]: method}
        for number, (name, method) in enumerate(METHODS.items())
    ],
}
REMEDIATOR_READS_AT_START = ("token_file", "journal", "exporter.config")
NOT_BESIDE_THE_OTHERS = {
    "alertmanager.token_file": "instead of basic_auth",
    "exporter.basic_auth.password_file": "instead of token_file",
}


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yields each key of a file that takes a path."""
    for name, field in model.model_fields.items():
        if is_path(field.annotation):
            yield f"{prefix}{name}"
        for section in sections(field.annotation):
            if section is not model:
                yield from keys_of(section, f"{prefix}{name}.")


def is_path(kind: Any) -> bool:
    return kind is Path or any(map(is_path, typing.get_args(kind)))


def sections(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [section for one in typing.get_args(kind) for section in sections(one)]


def keys_on_mount(content: Any, prefix: str = "") -> Iterator[str]:
    if content == "ON MOUNT":
        yield prefix
    for one in content if isinstance(content, list) else ():
        yield from keys_on_mount(one, prefix)
    for name, value in content.items() if isinstance(content, dict) else ():
        yield from keys_on_mount(value, f"{prefix}.{name}".strip("."))


def test_every_key_that_takes_a_path_is_tried() -> None:
    assert {*keys_on_mount(EXPORTER_FILE), *EXPORTER_READS_AT_START} == set(keys_of(ExporterConfig))
    tried = {*keys_on_mount(REMEDIATOR_FILE), *REMEDIATOR_READS_AT_START, *NOT_BESIDE_THE_OTHERS}
    assert tried == set(keys_of(RemediatorConfig))


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Path:
    mount = tmp_path_factory.mktemp("hung") / "mount"
    mount.mkdir()
    return mount


@pytest.fixture(scope="module")
def within(mount: Path) -> Iterator[list[str]]:
    """The start of a command line for programs that see the mount."""
    try:
        mounted = hung_mount(mount)
        yield mounted.__enter__()
    except OSError as error:
        pytest.skip(f"no FUSE file system can be mounted here: {error}")
    mounted.__exit__(None, None, None)


def place(content: object, mount: Path) -> str:
    """The content of a file, with each path in its place; JSON is YAML."""
    parts = json.dumps(content, indent=1).split("ON MOUNT")
    return "".join(f"{part}{mount}/{number}" for number, part in enumerate(parts[:-1])) + parts[-1]


def ask_often(program: Program) -> None:
    """More often than the program has threads to wait for the mount in."""
    for number in range(20):
        for path in ("/-/healthy", "/metrics", "/", "/status.json")[: 1 if number % 2 else 4]:
            began = time.monotonic()
            assert program.ask("GET", path).status == 200
            took = time.monotonic() - began
            assert path != "/-/healthy" or took < HEALTH_SECONDS


def test_the_exporter_goes_on_and_names_them(
    mount: Path, within: list[str], tmp_path: Path
) -> None:
    text = place(EXPORTER_FILE, mount)
    (tmp_path / "exporter.yml").write_text(text)
    program = Program(EXPORTER, tmp_path, within=within)
    try:
        ask_often(program)
        log = "\n".join(program.log)
    finally:
        program.close()
    config = json.loads(text)
    night = config["runs"][0]
    for path in (
        config["heartbeats"][0]["file"],
        config["runs_folder"],
        config["state_folder"],
        night["workers"][0]["match"]["pid_file"],
    ):
        assert f"{path}" in log


@pytest.mark.parametrize("key", EXPORTER_READS_AT_START)
def test_the_exporter_does_not_start_without_what_it_needs(
    key: str, mount: Path, within: list[str], tmp_path: Path
) -> None:
    (tmp_path / "exporter.yml").write_text(place(EXPORTER_READS_AT_START[key], mount))
    assert f"{mount}/0" in refusal(EXPORTER, tmp_path, within)


def refusal(name: str, folder: Path, within: list[str]) -> str:
    """What the program says when it ends at its start."""
    program = Program(name, folder, within=within, waits=False)
    try:
        until(lambda: program.process.poll() is not None)
        assert program.process.returncode == 1
        return "\n".join(program.log)
    finally:
        program.close()


def write_exporter_file(folder: Path) -> None:
    workers = [
        {"name": f"worker-{number}", "match": {"command": "no-such-program"}}
        for number in range(len(METHODS))
    ]
    run = {"name": "night", "workers": workers}
    (folder / "exporter.yml").write_text(json.dumps({"runs": [run]}))


def test_the_remediator_goes_on_and_holds(mount: Path, within: list[str], tmp_path: Path) -> None:
    write_config(REMEDIATOR, tmp_path / "remediator.yml")
    write_exporter_file(tmp_path)
    text = place(REMEDIATOR_FILE, mount)
    (tmp_path / "remediator.yml").write_text(text)
    program = Program(REMEDIATOR, tmp_path, within=within)
    try:
        ask_often(program)
        log = "\n".join(program.log)
        assert "trainwarden_remediator_paused 1" in program.page("/metrics")
    finally:
        program.close()
    assert json.loads(text)["hold_file"] in log


@pytest.mark.parametrize("key", REMEDIATOR_READS_AT_START)
def test_the_remediator_does_not_start_without_what_it_needs(
    key: str, mount: Path, within: list[str], tmp_path: Path
) -> None:
    write_config(REMEDIATOR, tmp_path / "remediator.yml")
    text = (tmp_path / "remediator.yml").read_text()
    given = {"token_file": "token", "journal": "state/journal.db", "exporter.config": "runs.yml"}
    (tmp_path / "remediator.yml").write_text(text.replace(f" {given[key]}", f" {mount}/x", 1))
    assert f"{mount}/x" in refusal(REMEDIATOR, tmp_path, within)
