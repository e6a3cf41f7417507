from __future__ import annotations

from pathlib import Path

import pytest

import suites

OTHERS = ("https://packages.example.org/apt tools-bookworm", "https://node.example.org/x nodistro")


def test_the_archive_offers_this_machines_release() -> None:
    lines = (*OTHERS, "http://mirror.example.org/debian/ bookworm-updates")
    wanted = "http://mirror.example.org/debian/ bookworm"
    assert suites.parse_archive([*lines, wanted], "bookworm") == "http://mirror.example.org/debian/"


def test_a_release_may_be_named_by_its_role() -> None:
    lines = [*OTHERS, "http://mirror.example.org/debian/ stable"]
    assert suites.parse_archive(lines, "trixie") == "http://mirror.example.org/debian/"


def test_packages_of_others_are_no_archive() -> None:
    with pytest.raises(suites.SuiteError, match="offers bookworm"):
        suites.parse_archive(OTHERS, "bookworm")


@pytest.mark.parametrize("name", ["", "../sid", "sid main\ndeb http://x y", "Sid", "sid/updates"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(suites.SuiteError, match="no suite is called"):
        suites.checked(name)


def test_apt_reads_that_suite_alone(tmp_path: Path) -> None:
    options = suites.write("sid", "http://mirror.example.org/debian/", tmp_path)
    (line,) = (tmp_path / "sources.list").read_text().splitlines()
    assert line.startswith("deb ")
    assert line.endswith("http://mirror.example.org/debian/ sid main")
    assert f"Dir::Etc::sourcelist={tmp_path}/sources.list" in options
    assert f"Dir::State::lists={tmp_path}/lists" in options
    assert (tmp_path / "lists" / "partial").is_dir()
