"""The lines of exporter.yml with which the causes are caught next time. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from trainwarden.autopsy.announced import AnnouncedWorker
from trainwarden.autopsy.case import Case
from trainwarden.autopsy.cause import Setting
from trainwarden_exporter.discovery.yaml_writer import flow

_REFUSED_PORT = re.compile(r"""(?:['"], |:|port[ =])(\d{2,5})\b""")
_MAX_PORT = 65_535
_ENGINES = ("vllm", "sglang")
_DEFAULT_COMMANDS = {
    "trainer": r"train\w*\.py",
    "orchestrator": "orchestrator",
    "inference": r"vllm serve|sglang\.launch_server",
}


def propose(case: Case, settings: Iterable[Setting]) -> str:
    """Returns a complete exporter.yml for the run, with what `settings` name."""
    wanted = set(settings)
    config: dict[str, Any] = yaml.safe_load(case.material.config_text) or {}
    run = (config.get("runs") or [{"name": case.material.run}])[0]
    roles = _roles(case, wanted)
    if wanted & {"workers", "inference", "rollouts", "memory", "progress"}:
        run["workers"] = [_worker(role, command) for role, command in roles.items()]
    if "inference" in wanted or ("rollouts" in wanted and "inference" in roles):
        run["inference"] = [_server(case, roles)]
    if "container" in wanted:
        run["containers"] = [{"name": "container", "self": True}]
    if case.find("brake") is not None and "memory" in wanted:
        _add_brake(case, run)
    if "disk" in wanted:
        config["disks"] = [{"path": str(_folder(case)), "probe": {}}]
    if "watchdog" in wanted:
        config["heartbeats"] = _heartbeats(case, run["name"])
    return _written(config, run, memory="memory" in wanted)


def needs_file(settings: Iterable[Setting]) -> bool:
    """Whether what is watched of a run that `trainwarden run` announces is not enough."""
    return not {"container", "watchdog"}.isdisjoint(settings)


def missing_options(announced: Sequence[AnnouncedWorker], settings: Iterable[Setting]) -> list[str]:
    """Returns what else `trainwarden run` needs for such a run, as sentences in Markdown."""
    wanted, found = set(settings), []
    if "memory" in wanted:
        found.append("`--memory-limit SIZE`: above it, the worker is restarted.")
    if all(one.checkpoints is None for one in announced):
        found.append("`--checkpoints FOLDER`: a hang is restarted from what is saved there.")
    if wanted & {"inference", "rollouts"} and len(announced) == 1:
        run = announced[0].run
        start = f"trainwarden run --name {run} --worker server --role inference -- COMMAND"
        found.append(f"`{start}`: a server that is started so is watched, too.")
    return found


def _folder(case: Case) -> Path:
    folder = case.material.folder
    return folder if folder.is_dir() else folder.parent


def _roles(case: Case, wanted: set[Setting]) -> dict[str, str]:
    """Returns the pattern of the command line of each part that has a log or that is at fault."""
    own: dict[str, str] = {}
    for pattern in case.material.framework.roles:
        own.setdefault(pattern.role, pattern.command)
    needed = {"trainer"}
    needed |= {"inference"} if "inference" in wanted else set()
    needed |= {"inference", "orchestrator"} & own.keys() if "rollouts" in wanted else set()
    needed |= {log.role for log in case.logs} & _DEFAULT_COMMANDS.keys()
    found = {
        role: own.get(role, command)
        for role, command in _DEFAULT_COMMANDS.items()
        if role in needed
    }
    shown = " ".join((*(log.name for log in case.logs), *_server_lines(case))).lower()
    if "inference" in found and "sglang" in shown:
        found["inference"] = r"sglang\.launch_server|sglang::"
    return found


def _server_lines(case: Case) -> tuple[str, ...]:
    return tuple(line for log in case.logs if log.role == "inference" for line in log.last_lines)


def _worker(role: str, command: str) -> dict[str, Any]:
    item: dict[str, Any] = {"name": role, "role": role, "match": {"command": command}}
    if role == "trainer":
        item["finishes"] = True
    return item


def _server(case: Case, roles: dict[str, str]) -> dict[str, Any]:
    item: dict[str, Any] = {"name": "inference"}
    if "inference" in roles:
        item["worker"] = "inference"
    port = _port(case)
    engine = next((name for name in _ENGINES if name in roles.get("inference", "")), None)
    if port is not None:
        item["engine"] = engine or "vllm"
        item["url"] = f"http://127.0.0.1:{port}"
    return item


def _port(case: Case) -> int | None:
    """Returns the port of the refused connections."""
    found = case.find("connection_refused")
    if found is None:
        return None
    ports = [int(port) for port in _REFUSED_PORT.findall(found.last.text)]
    return next((port for port in reversed(ports) if 1 <= port <= _MAX_PORT), None)


def _add_brake(case: Case, run: dict[str, Any]) -> None:
    """Adds the pattern of the brake to each log in which it fired, below the run's path."""
    logs = {log["name"]: log for log in run.get("logs", ())}
    base = Path(run["path"]) if "path" in run else _folder(case)
    for reading in case.logs:
        if "brake" not in reading.tallies:
            continue
        try:
            file = str(reading.log.path.relative_to(base))
        except ValueError:
            file = str(reading.log.path)
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", reading.log.path.stem).strip("-.") or "worker"
        log = logs.setdefault(name, {"name": name, "files": [file]})
        own = [one for one in log.get("patterns", ()) if "brake" not in one["name"]]
        log["patterns"] = [
            *own,
            {"name": "brake", "regex": r"(?i:\bemergency brake\b)", "error": True},
            {"name": "trial_done", "regex": r"[Tt]rial \d+ finished", "resets": "brake"},
        ]
    run["logs"] = list(logs.values())


def _heartbeats(case: Case, run: str) -> list[dict[str, Any]]:
    """Returns heartbeats by the watchdogs' logs: each round writes to them."""
    return [
        {
            "name": re.sub(r"[^A-Za-z0-9_.-]+", "-", log.log.path.stem) or "watchdog",
            "run": run,
            "file": str(log.log.path),
            "interval": "5m",
        }
        for log, _ in case.silent_watchdogs
    ]


def _written(config: dict[str, Any], run: dict[str, Any], *, memory: bool) -> str:
    """Writes short items on one line each."""
    lines = ["state_folder: state"]
    for key in ("disks", "heartbeats"):
        if key in config:
            lines.append(f"{key}:")
            lines += [f"  - {flow(item)}" for item in config[key]]
    lines += ["runs:", f"  - name: {flow(run['name'])}"]
    for key, value in run.items():
        if key == "name":
            continue
        if not isinstance(value, list):
            lines.append(f"    {key}: {flow(value)}")
            continue
        if value:
            lines.append(f"    {key}:")
            lines += [f"      - {flow(item)}" for item in value]
        if key == "workers" and memory:
            # a limit restarts a worker, so it is never guessed
            lines.append("      # of a worker: memory_limit: 8GiB  # above it, it is restarted")
    return "\n".join(lines) + "\n"
