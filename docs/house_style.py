"""Checks the house style of the repository: the size and layers of the packages, and the words.

    python docs/house_style.py [ROOT]

Prints a table of what it counted, then each violation as `path:line: message` with the successor,
and exits with 1 if there is any. `make check` runs it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]

ROOT_ENTRIES = {
    "exporter/trainwarden_exporter": 30,
    "remediator/trainwarden_remediator": 24,
    "command/trainwarden": 16,
}
"""Limit of files and folders directly in each package."""
MODULE_LINES = 400
TEXTS = (
    "bench",
    "command",
    "deploy",
    "docs",
    "examples",
    "exporter",
    "grafana",
    "remediator",
    "rules",
    "tests",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "Makefile",
    "README.md",
    "docker-compose.yml",
    "pyproject.toml",
)
SUFFIXES = {
    ".conf",
    ".html",
    ".libsonnet",
    ".md",
    ".py",
    ".service",
    ".sh",
    ".toml",
    ".yaml",
    ".yml",
}
NAMES = {"Dockerfile", "Makefile"}
"""Files without a suffix that are read. Other files are data: samples of foreign programs,
pictures, dashboards that are written from grafana/*.py."""

WORDS = {
    "told": "informed, reported, logged, configured",
    "said": "logged, reported, printed, stated",
    "heard": "received",
    "anew": "again",
    "whoever": "name the role: operator, on-call, caller",
    "whom": "name the role: operator, on-call, caller",
    "of which": "two sentences, or `whose`",
    "in vain": "without effect",
    "by itself": "automatically, alone",
    "a person": "an operator, the on-call",
    "the box": "the host",
    "those that": "name the things: `processes that`",
    "one that": "name the thing: `a process that`",
    "nothing is": "make the thing the subject: `no action starts`",
    "eyes": "observer, scanner",
}
"""What is not used, in prose and in identifiers, with its successors."""


@dataclass(frozen=True)
class Allowed:
    """An exception: the phrase (or `any`) is allowed in lines of the file that contain `within`."""

    path: str
    phrase: str
    within: str
    reason: str

    def covers(self, path: str, phrase: str, text: str) -> bool:
        """Whether this allows the phrase in that text; `_` is a space there."""
        return self.path == path and self.phrase in ("any", phrase) and self.within in text


ALLOWED: tuple[Allowed, ...] = (
    Allowed("docs/house_style.py", "any", "", "holds the list"),
    Allowed("tests/docs/test_house_style.py", "any", "", "feeds it bad text"),
    *(
        Allowed(
            "remediator/trainwarden_remediator/journal/schema.py",
            phrase,
            "",
            "names of tables, columns and events in the journals of older versions, as they are",
        )
        for phrase in ("told", "said", "heard")
    ),
    *(
        Allowed(
            "tests/remediator/journal/test_database.py",
            phrase,
            "",
            "creates and reads a journal of an older version, with its columns as they are",
        )
        for phrase in ("told", "said", "heard")
    ),
    Allowed(
        "tests/exporter/frameworks/test_error_lines.py",
        "of which",
        "is free.",
        "a line as PyTorch prints it",
    ),
)
PENDING: tuple[str, ...] = ()
"""Folders whose words are not checked yet."""


@dataclass(frozen=True)
class Violation:
    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def root_entries(root: Path) -> Iterator[tuple[str, int, list[Violation]]]:
    """Each package with the number of its direct files and folders."""
    for package, limit in ROOT_ENTRIES.items():
        count = sum(entry.name != "__pycache__" for entry in (root / package).iterdir())
        message = f"{count} files and folders, more than {limit}: move some into a folder"
        yield package, count, [Violation(package, 1, message)] if count > limit else []


def long_modules(root: Path) -> list[Violation]:
    found = []
    for package in ROOT_ENTRIES:
        for path in sorted((root / package).rglob("*.py")):
            lines = path.read_bytes().count(b"\n")
            if lines > MODULE_LINES:
                message = f"{lines} lines, more than {MODULE_LINES}: split the module"
                found.append(Violation(str(path.relative_to(root)), 1, message))
    return found


def upward_imports(root: Path) -> list[Violation]:
    """The imports that break the contracts of import-linter in pyproject.toml.

    Raises RuntimeError if import-linter fails for another reason.
    """
    search_path = os.pathsep.join(str(root / Path(package).parent) for package in ROOT_ENTRIES)
    done = subprocess.run(  # noqa: S603
        [Path(sys.executable).with_name("lint-imports"), "--no-logo"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": search_path, "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.returncode:
        return []
    found = [
        Violation(_module_path(root, module), int(line), f"import of {imported} breaks a contract")
        for module, imported, line in re.findall(
            r"^\s*[-&]?\s*([\w.]+) ->\s+([\w.]+) \(l\.(\d+)", done.stdout, re.MULTILINE
        )
    ]
    if not found:
        raise RuntimeError(f"lint-imports failed:\n{done.stdout}{done.stderr}")
    return found


def _module_path(root: Path, module: str) -> str:
    for package in ROOT_ENTRIES:
        path = Path(package).parent.joinpath(*module.split("."))
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if (root / candidate).exists():
                return str(candidate)
    return module


def text_files(root: Path) -> Iterator[Path]:
    for name in TEXTS:
        top = root / name
        if top.is_file():
            yield top
            continue
        for folder, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
            for file in sorted(names):
                if file in NAMES or Path(file).suffix in SUFFIXES:
                    yield Path(folder, file)


_GAP = r"(?:[\s#>*\"']|\\n|[fr](?=[\"']))+"
"""Between the words of a phrase: a line break and the head of a comment may separate them."""
_PHRASES = re.compile(
    r"\b(?:" + "|".join(f"({phrase.replace(' ', _GAP)})" for phrase in WORDS) + r")\b",
    re.IGNORECASE,
)
_JOINT = re.compile(r"_|(?<=[a-z])(?=[A-Z])")
"""Between the words of an identifier."""


def banned_words(
    root: Path, allowed: tuple[Allowed, ...] = ALLOWED, pending: tuple[str, ...] = PENDING
) -> list[Violation]:
    """The words that are not used, and the exceptions that no line needs."""
    found = []
    needless = set(allowed)
    for path in text_files(root):
        name = str(path.relative_to(root))
        if name.startswith(pending):
            continue
        text = _JOINT.sub(" ", path.read_text(encoding="utf-8"))
        for match in _PHRASES.finditer(text):
            phrase = list(WORDS)[(match.lastindex or 0) - 1]
            start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
            lines = text[start : len(text) if end < 0 else end]
            exceptions = {one for one in allowed if one.covers(name, phrase, lines)}
            needless -= exceptions
            if not exceptions:
                line = text.count("\n", 0, match.start()) + 1
                found.append(Violation(name, line, f"`{phrase}` is not used: {WORDS[phrase]}"))
    found += [
        Violation(one.path, 1, f"no line needs the exception for `{one.phrase}`: remove it")
        for one in sorted(needless, key=lambda one: one.path)
        if not one.path.startswith(pending)
    ]
    return found


def check(
    root: Path, allowed: tuple[Allowed, ...] = ALLOWED, pending: tuple[str, ...] = PENDING
) -> tuple[list[tuple[str, str]], list[Violation]]:
    """The table of what was counted, and every violation."""
    rows, violations = [], []
    for package, count, found in root_entries(root):
        rows.append((f"files and folders in {package}", f"{count} of {ROOT_ENTRIES[package]}"))
        violations += found
    for title, found in (
        ("upward imports", upward_imports(root)),
        (f"modules over {MODULE_LINES} lines", long_modules(root)),
        ("words that are not used", banned_words(root, allowed, pending)),
    ):
        rows.append((title, str(len(found))))
        violations += found
    rows.append(("exceptions with a reason", str(len(allowed))))
    if pending:
        rows.append(("folders still to be checked", str(len(pending))))
    return rows, violations


def main() -> int:
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else PROJECT
    rows, violations = check(root)
    width = max(len(title) for title, _ in rows)
    for title, value in rows:
        print(f"{title:{width}}  {value}")
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    raise SystemExit(main())
