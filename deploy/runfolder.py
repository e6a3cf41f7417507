"""Fills the folder that one run of the stack lives in: configuration, token, logs, state."""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml

import ports
import receivers
import rendering
import simulation
from ruleset import RULES
from simulation import Simulation
from stack import PROJECT, Binaries, StackError, private_files, script
from trainwarden_exporter.exceptions import ConfigError
from trainwarden_remediator.config.schema import Config, load_setup
from write_rules import own_rules

CONFIG_FILES = ("exporter.yml", "remediator.yml")
DEMO = PROJECT / "examples" / "demo"
KEEP_HISTORY = "7d"
SOCKET_PATH_BYTES = 90
"""Of the 107 that unix(7) allows, less what supervisord adds while it binds."""

REMEDIATOR_LINK = "remediator.path"
"""Holds the path of the remediator's file, for `trainwarden journal`."""

ANNOUNCED = """\
# Made by `trainwarden up`, without a folder of configuration: `trainwarden run` announces the runs.
state_folder: state
remediator: {url: '${remediator_url}'}
"""

OBSERVE = """\
# Made by `trainwarden up`, which has no targets of yours. The mode is that of `up --mode`.
# Without a folder of configuration, the section `notify` is kept; with one, copy this file there
# and add targets.
mode: '${mode}'
token_file: secrets/webhook-token
journal: state/journal.db
hold_file: state/hold
exporter: {url: '${exporter_url}', config: '${exporter_file}'}
alertmanager: {url: '${alertmanager_url}'}
"""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A folder that is ready to run."""

    path: Path
    ports: Mapping[str, int]
    exporter_file: Path
    remediator_file: Path
    demo: tuple[str, ...]
    """Names of the demo's processes; none when the stack watches a run of the user's."""
    gpus: Simulation | None = None
    """The demo's simulated GPUs; None when the stack watches a run of the user's."""
    has_own_token: bool = True
    """Whether the remediator and Alertmanager read the token in one file, made for the stack."""

    def url(self, name: str) -> str:
        """Where a part of the stack listens."""
        return f"http://{ports.LOOPBACK}:{self.ports[name]}"

    @property
    def socket(self) -> Path:
        return self.path / "supervisor.sock"

    @property
    def programs(self) -> tuple[str, ...]:
        """What supervisord runs beside the stack itself."""
        simulated = self.gpus is not None and self.gpus.present
        return (*self.demo, *([simulation.NAME] if simulated else []))

    @property
    def supervisord_file(self) -> Path:
        return self.path / "supervisord.conf"

    def log(self, name: str) -> Path:
        """What a part of the stack has printed."""
        return self.path / "logs" / f"{name}.log"

    def fault(self, worker: str) -> Path:
        """The file through which a fault of a demo process is switched on."""
        return self.path / "demo" / "faults" / worker


@private_files()
def prepare_demo(
    folder: Path, binaries: Binaries, *, mode: str, any_free: bool = False
) -> RunFolder:
    """Fill `folder` for the demo run; what an earlier run left there is removed, but for `notify`.

    Raises StackError when something else than such a folder is there.
    """
    kept = ""
    with suppress(StackError):  # a file of an older version is no reason to show no demo
        kept = receivers.section_of(folder / "remediator.yml")
    before = ports.read(folder)
    _empty(folder)
    chosen = ports.choose(before=before, any_free=any_free)
    values = _values(folder, chosen) | {
        "python": sys.executable,
        "programs": str(DEMO),
        "folder": str(folder / "demo"),
        "user": str(os.getuid()),
        "folder_pattern": re.escape(str(folder / "demo")),
        "inference_port": str(chosen["inference"]),
    }
    for name in CONFIG_FILES:
        text = (DEMO / name).read_text(encoding="utf-8")
        (folder / name).write_text(
            rendering.fill(text, values, rendering.single_quoted), encoding="utf-8"
        )
    remediator_file = folder / "remediator.yml"
    with remediator_file.open("a", encoding="utf-8") as file:
        file.write(kept)
    targets = yaml.safe_load(remediator_file.read_text(encoding="utf-8"))["targets"]
    made = RunFolder(
        path=folder,
        ports=chosen,
        exporter_file=folder / "exporter.yml",
        remediator_file=remediator_file,
        demo=tuple(target["worker"] for target in targets),
        gpus=simulation.prepare(folder / "demo" / "gpu"),
    )
    _write_token(folder / rendering.TOKEN_FILE, secrets.token_hex(32))
    sections = [rendering.program(target, folder) for target in targets]
    if made.gpus is not None:
        sections.append(simulation.program(made.gpus, folder))
    _write_shared(made, binaries, mode, "".join(sections))
    return made


@private_files()
def prepare_own(
    folder: Path, config: Path, binaries: Binaries, *, mode: str, any_free: bool = False
) -> RunFolder:
    """Fill `folder` for the configuration in the folder `config`, which is used where it lies.

    Without a remediator.yml there, or if its only section is `notify`, a file with `mode` is
    made; without an exporter.yml, the runs that are announced are watched. An
    overrides.yml there changes the shipped alerts (docs/rules.md). History of an earlier run is
    kept. Raises StackError when the configuration is wrong, or names a port that is in use.
    """
    folder.mkdir(parents=True, exist_ok=True)
    token_file = folder / rendering.TOKEN_FILE
    remediator_file = config / "remediator.yml"
    alone = receivers.alone_in(remediator_file)
    if remediator_file.exists() and not alone:
        try:
            settings = load_setup(remediator_file).config
        except ConfigError as error:
            raise StackError(str(error)) from error
        fixed = fixed_ports(settings)
        chosen = _choose(fixed, remediator_file, ports.read(folder), any_free=any_free)
        exporter_file = settings.exporter.config
        _write_token(token_file, _token(settings))
        has_own_token = False
    else:
        chosen = ports.choose(before=ports.read(folder), any_free=any_free)
        values = _values(folder, chosen)
        exporter_file = config / "exporter.yml"
        if not exporter_file.exists():
            exporter_file = folder / "exporter.yml"
            text = rendering.fill(ANNOUNCED, values, rendering.single_quoted)
            exporter_file.write_text(text, encoding="utf-8")
        if alone and folder != config:
            alone = f"# Copied from {remediator_file}: change it there.\n{alone}"
        remediator_file = folder / "remediator.yml"
        values |= {"exporter_file": str(exporter_file), "mode": mode}
        text = rendering.fill(OBSERVE, values, rendering.single_quoted)
        remediator_file.write_text(text + alone, encoding="utf-8")
        _write_token(token_file, secrets.token_hex(32))
        has_own_token = True
    made = RunFolder(folder, chosen, exporter_file, remediator_file, (), None, has_own_token)
    try:
        rules = own_rules(config / "overrides.yml", folder / "rules")
    except ConfigError as error:
        raise StackError(str(error)) from error
    _write_shared(made, binaries, mode, "", rules=rules)
    return made


@private_files()
def prepare_announced(
    folder: Path, binaries: Binaries, *, mode: str, any_free: bool = False
) -> RunFolder:
    """Fill `folder` for the runs that `trainwarden run` announces; its history is kept.

    So is the section `notify` of its remediator.yml. Raises StackError.
    """
    file = folder / "remediator.yml"
    if kept := receivers.section_of(file):
        file.write_text(kept, encoding="utf-8")
    else:
        file.unlink(missing_ok=True)
    (folder / "exporter.yml").unlink(missing_ok=True)
    return prepare_own(folder, folder, binaries, mode=mode, any_free=any_free)


def fixed_ports(settings: Config) -> dict[str, int]:
    """The ports that a user's remediator.yml says its exporter and Alertmanager have."""
    urls = {"exporter": settings.exporter.url, "alertmanager": settings.alertmanager.url}
    parts = {name: urlsplit(url) for name, url in urls.items()}
    return {
        name: part.port or (443 if part.scheme == "https" else 80) for name, part in parts.items()
    }


def _choose(
    fixed: Mapping[str, int], path: Path, before: Mapping[str, int], *, any_free: bool
) -> dict[str, int]:
    try:
        return ports.choose(fixed, before, any_free=any_free)
    except ports.InUseError as error:
        raise StackError(
            f"port {error.port} is in use, and {path} has the {error.name} there: end the program "
            f"that listens on it, or set {error.name}.url to another port"
        ) from error


def _token(settings: Config) -> str:
    """The first token the user's remediator accepts; a fresh one is made where there is none."""
    if settings.token_file is None:
        return secrets.token_hex(32)
    if not settings.token_file.exists():
        _write_token(settings.token_file, secrets.token_hex(32))
    for line in settings.token_file.read_text(encoding="utf-8").splitlines():
        if line.strip():
            return line.strip()
    raise StackError(f"{settings.token_file} holds no token: write one, or remove the file")


def _write_token(path: Path, token: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")


def _write_shared(
    made: RunFolder, binaries: Binaries, mode: str, further_programs: str, *, rules: Path = RULES
) -> None:
    """Write what the demo and a run of the user's have in common."""
    folder = made.path
    if len(os.fsencode(made.socket)) > SOCKET_PATH_BYTES:
        raise StackError(
            f"{folder} is too long a path for the socket in it: set TRAINWARDEN_STACK_DIR to a "
            "shorter one"
        )
    for name in ("logs", "state", "data/prometheus", "data/alertmanager"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("prometheus.yml", "alertmanager.yml"):
        shipped = yaml.safe_load((RULES / name).read_text(encoding="utf-8"))
        tree = rendering.with_absolute_paths(rendering.with_ports(shipped, made.ports), rules)
        (folder / name).write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    (folder / REMEDIATOR_LINK).write_text(str(made.remediator_file), encoding="utf-8")
    (folder / ports.FILE).write_text(json.dumps(dict(made.ports)), encoding="utf-8")
    template = (PROJECT / "deploy" / "supervisord.conf").read_text(encoding="utf-8")
    commands = {
        name: rendering.command(line) for name, line in _commands(made, binaries, mode).items()
    }
    values = commands | {"folder": rendering.escaped(str(folder)), "user": _user()}
    made.supervisord_file.write_text(
        rendering.fill(template, values, str) + further_programs, encoding="utf-8"
    )


def _commands(made: RunFolder, binaries: Binaries, mode: str) -> dict[str, Sequence[str | Path]]:
    folder, address = made.path, f"{ports.LOOPBACK}:"
    commands: dict[str, Sequence[str | Path]] = {
        "exporter": (
            script("trainwarden-exporter"),
            "run",
            f"--config.file={made.exporter_file}",
            f"--web.listen-address={address}{made.ports['exporter']}",
            f"--remediator.url={made.url('remediator')}",
        ),
        "remediator": (
            script("trainwarden-remediator"),
            "run",
            f"--config.file={made.remediator_file}",
            f"--web.listen-address={address}{made.ports['remediator']}",
            f"--mode={mode}",
            *(["--token.renew"] if made.has_own_token else []),
        ),
        "prometheus": (
            binaries.prometheus,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data/prometheus'}",
            f"--storage.tsdb.retention.time={KEEP_HISTORY}",
            # What found Alertmanager down is sent again after this long, not after a minute.
            "--rules.alert.resend-delay=15s",
            f"--web.listen-address={address}{made.ports['prometheus']}",
            f"--web.external-url={made.url('prometheus')}",
        ),
        "alertmanager": (
            binaries.alertmanager,
            f"--config.file={folder / 'alertmanager.yml'}",
            f"--storage.path={folder / 'data/alertmanager'}",
            f"--web.listen-address={address}{made.ports['alertmanager']}",
            f"--web.external-url={made.url('alertmanager')}",
            "--cluster.listen-address=",
        ),
        "watch": (
            sys.executable,
            PROJECT / "deploy" / "watch.py",
            made.socket,
            *(f"{name}={made.url(name)}/-/healthy" for name in ("exporter", "remediator")),
        ),
    }
    if made.gpus is not None:
        for name in ("exporter", "remediator"):
            commands[name] = made.gpus.seen_by(commands[name])
    return commands


def _values(folder: Path, chosen: Mapping[str, int]) -> dict[str, str]:
    made = RunFolder(folder, chosen, Path(), Path(), ())
    return {f"{name}_url": made.url(name) for name in chosen}


def _empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        if not _is_made_here(folder):
            raise StackError(f"{folder} holds something else; it is not emptied for the demo")
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()
    folder.mkdir(parents=True, exist_ok=True)


def _is_made_here(folder: Path) -> bool:
    """Whether an earlier run filled the folder: a configuration of supervisord may be a user's."""
    template = PROJECT / "deploy" / "supervisord.conf"
    with suppress(OSError), (folder / "supervisord.conf").open() as made, template.open() as ours:
        return (folder / ports.FILE).exists() and made.readline() == ours.readline()
    return False


def _user() -> str:
    """Without this line supervisord warns root of itself; a uid without a name needs none."""
    try:
        return f"user={pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return ""
