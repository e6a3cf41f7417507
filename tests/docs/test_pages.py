"""Every link and file of a page exists, and its commands are known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from trainwarden_exporter.__main__ import main as exporter
from trainwarden_remediator.__main__ import main as remediator

PROJECT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *PROJECT.glob("*.md"),
        *(PROJECT / "docs").rglob("*.md"),
        *(PROJECT / "examples").rglob("*.md"),
    ]
)
PROGRAMS = {"trainwarden-exporter": exporter, "trainwarden-remediator": remediator}
NAMED = re.compile(r"`((?:deploy|rules|examples|grafana|docs|tests|bench)/[\w./-]+)`")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)


@each_page
def test_no_row_of_a_table_has_more_cells_than_its_head(page: Path) -> None:
    """A bar behind a backslash is text, but not behind an escaped backslash."""
    head = 0
    for line in without_blocks(page).splitlines():
        bars = re.findall(r"\\.|\|", line).count("|") if line.startswith("|") else 0
        assert not head or bars <= head, line
        head = (head or bars) if bars else 0


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+?) *$", without_blocks(page), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in plain)


def dead_links(page: Path) -> Iterator[str]:
    prose = re.sub(r"`[^`\n]*`", "", without_blocks(page))
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def test_the_pages_are_found() -> None:
    assert {"README", "configuration", "security", "TrainingWorkerGone"} <= {
        page.stem for page in PAGES
    }


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list(dead_links(page)) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c\n[here](#a-b-c) [gone](#b) [away](other.md) [far](https://a.example)"
    )
    assert list(dead_links(page)) == ["#b", "other.md"]


@each_page
def test_every_file_it_names_is_there(page: Path) -> None:
    named = NAMED.findall(text_of(page))
    assert [name for name in named if not (PROJECT / name).exists()] == []


@each_page
def test_every_target_of_make_it_names_is_there(page: Path) -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|\$ (?:\w+=\S+ )*)make ([a-z][a-z-]+)\b", text_of(page)))
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def calls(page: Path) -> list[tuple[str, str, str]]:
    """The program, command and rest of the line of each call that a page shows."""
    joined = re.sub(r"\\\n *", "", text_of(page))
    shown = re.findall(r"```\w*\n([^`]*)```|`([^`\n]+)`|^ {4}(\S[^\n]*)$", joined, re.MULTILINE)
    programs = "|".join(PROGRAMS)
    return re.findall(
        rf"({programs}) (?!{programs})([a-z][a-z-]*)\b([^\n]*)", "\n".join(map("".join, shown))
    )


@each_page
def test_every_command_it_shows_is_known_with_its_options(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = []
    for program, command, rest in calls(page):
        with pytest.raises(SystemExit) as ended:
            PROGRAMS[program]([command, "--help"])
        printed = capsys.readouterr()
        if ended.value.code != 0:
            unknown.append(f"{program} {command}: {printed.err}")
            continue
        own = re.split(r"[|#;&>]", rest)[0]
        unknown += [
            f"{program} {command} {option}"
            for option in re.findall(r"(?<=\s)--[a-z][a-z.-]*", own)
            if not re.search(rf"{re.escape(option)}\b", printed.out)
        ]
    assert unknown == []
