"""Says what a command line runs: its script, its kind, the folders and modules it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from trainwarden_exporter.discovery.processes import Candidate

MAX_SCRIPT_BYTES = 256 << 10

INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*|bash|sh|dash|zsh|node|ruby|perl|uv|env")
_SHELLS = re.compile(r"-?(?:ba|da|z|k|fi)?sh")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
LAUNCHERS = re.compile(
    r"accelerate|torchrun|torch\.distributed\.(?:run|launch)|deepspeed|lightning|fabric|mpirun|uv"
)
"""Programs that run the script among their arguments."""

_TOOLS = re.compile(
    r"tail|less|more|cat|grep|rg|watch|vim?|nvim|nano|emacs|code|ssh|sshd|rsync|scp|tmux.*|screen"
    r"|sudo|su|make|timeout|nohup|top|htop|nvtop|nvitop|gdb|strace|py-spy|git|find|cron"
    r"|tensorboard|wandb\S*|mlflow|jupyter\S*|ipykernel\S*|pip|pytest"
)
"""Programs that look at a run, edit it or start it, and are no part of it."""

_MONITORING = re.compile(
    r"trainwarden\b.*|trainwarden[_-].*|prometheus|alertmanager|grafana(?:-server)?|supervisord?"
    r"|node_exporter",
    re.IGNORECASE,
)
_WATCHDOGS = re.compile(
    r"watchdog|heartbeat|guard(?:ian)?\b|babysit|emergency.?brake", re.IGNORECASE
)
_TRAINS = re.compile(
    r"(?:^|[_\-./])(?:pre|fine_?)?(?:train|tune)|(?:^|[_\-./])(?:sft|dpo|grpo|ppo|rlhf|kto|search)"
    r"(?:[_\-.]|$)",
    re.IGNORECASE,
)
_RENAMES = re.compile(
    r"\b(?:os\.(?:replace|rename)|shutil\.move)\([^\n]*(?:tmp|temp|partial)"
    r"|(?:tmp|temp|partial)\w*\.(?:replace|rename)\((?!['\"])",
    re.IGNORECASE,
)
_LITERALS = re.compile(r"""["']([\w./-]{2,200})["']""")
_IMPORTS = re.compile(
    r"^[ \t]*(?:from\s+([\w.]+)\s+import\b[ \t]*(\([^)]*|.*)|import\s+([\w., ]+))", re.MULTILINE
)


def program_name(arguments: Sequence[str]) -> str:
    """Returns the last part of the path of the script, else of the program."""
    script = find_script(arguments)
    return PurePath(script or arguments[0].split(" ")[0] or "-").name


def find_script(arguments: Sequence[str]) -> str | None:
    """Returns the script or module that an interpreter runs; None for another program."""
    if not INTERPRETERS.fullmatch(PurePath(arguments[0]).name):
        return None
    rest = iter(arguments[1:])
    for argument in rest:
        if argument == "-m":
            return next(rest, None)
        if argument in ("-c", "-"):
            return None
        if argument in ("-W", "-X"):
            next(rest, None)
        elif not argument.startswith("-"):
            return argument
    return None


def find_launched_script(arguments: Sequence[str]) -> str | None:
    """Returns the script that a launcher such as torchrun runs; None for any other program."""
    if not LAUNCHERS.fullmatch(program_name(arguments)):
        return None
    rest = list(arguments[1:])
    modules = [rest[i + 1] for i, one in enumerate(rest[:-1]) if one == "-m"]
    scripts = [one for one in rest if one.endswith(".py")]
    return next(iter((*scripts, *modules[-1:])), None)


def is_tool(candidate: Candidate) -> bool:
    """Whether the program is a shell, editor, pager, notebook or the like."""
    arguments = candidate.arguments
    name = program_name(arguments)
    names = {PurePath(arguments[0]).name, name, name.split(".")[0]}
    return any(_TOOLS.fullmatch(name) or _SHELLS.fullmatch(name) for name in names)


def is_monitoring(candidate: Candidate) -> bool:
    """Whether the program monitors runs; a run may lie in a folder of such a name."""
    return bool(_MONITORING.fullmatch(program_name(candidate.arguments))) or _is_own(candidate)


def _is_own(candidate: Candidate) -> bool:
    """Whether it is a script of a stack of Trainwarden, as of another installation."""
    script = Path(find_script(candidate.arguments) or "")
    if script.parent.name != "deploy" or script.name not in ("up.py", "watch.py"):
        return False
    try:
        return ((candidate.folder or Path("/")) / script.with_name("runfolder.py")).is_file()
    except OSError:
        return False


def is_watchdog(candidate: Candidate) -> bool:
    return bool(_WATCHDOGS.search(program_name(candidate.arguments)))


def runs_python(candidate: Candidate) -> bool:
    """Whether the program is a Python script or module, started directly or by a launcher."""
    arguments = candidate.arguments
    return (
        bool(_PYTHON.fullmatch(PurePath(arguments[0]).name)) and find_script(arguments) is not None
    ) or find_launched_script(arguments) is not None


def names_training(candidate: Candidate) -> bool:
    """Whether the name of the script says that it trains."""
    script = find_launched_script(candidate.arguments) or find_script(candidate.arguments) or ""
    return bool(_TRAINS.search(PurePath(script).name))


def read_script(candidate: Candidate) -> str:
    """Returns the text of the script; empty if it cannot be read."""
    script = find_launched_script(candidate.arguments) or find_script(candidate.arguments)
    if script is None or candidate.folder is None:
        return ""
    try:
        with (candidate.folder / script).open("rb") as file:
            return file.read(MAX_SCRIPT_BYTES).decode(errors="replace")
    except (OSError, ValueError):
        return ""


def renames_temporary_files(text: str) -> bool:
    """Whether a script renames temporary files, so that what has its final name is complete."""
    return bool(_RENAMES.search(text))


def imported_modules(text: str) -> frozenset[str]:
    """Returns the modules that a Python script imports, with the modules above them.

    What is imported from a module may be one itself: `from ray import tune`.
    """
    found: set[str] = set()
    for single, inner, several in _IMPORTS.findall(text):
        from_it = [f"{single}.{name}" for name in re.findall(r"\w+", inner)] if single else []
        for name in [single, *from_it, *several.split(",")]:
            parts = name.split(" as ")[0].strip().split(".")
            found.update(".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return frozenset(found - {""})


def literal_folders(text: str, folder: Path) -> Iterator[Path]:
    """Yields the existing folders that the texts in a script name, relative to `folder`."""
    for literal in dict.fromkeys(_LITERALS.findall(text)):
        path = folder / literal
        try:
            if literal.strip("./") and path.is_dir():
                yield path.resolve()
        except OSError:
            continue
