from __future__ import annotations

import math

import pytest

from trainwarden_exporter.processes.procfs_parser import (
    Cgroup,
    Identity,
    Transfers,
    parse_cgroups,
    parse_command_line,
    parse_environment,
    parse_open_files_limit,
    parse_pss,
    parse_resident_bytes,
    parse_stat,
    parse_transfers,
)

# a line of Linux 6.18
STAT = (
    "4670 ({name}) {state} 4658 4658 2975 0 -1 {flags} 101 0 0 0 150 50 0 0 20 0 3 0 107917 "
    "3133440 411 18446744073709551615 94481942040576 94481942060457 140735499452160 0 0 0 0 0 0 "
    "0 0 0 17 1 0 0 0 0 0 94481942076464 94481942078080 94482711085056 {arg_start} "
    "140735499455220 140735499455220 140735499456491 0\n"
)


def stat(name: str = "cat", state: str = "R", flags: int = 4194304, arg_start: int = 7) -> str:
    return STAT.format(name=name, state=state, flags=flags, arg_start=arg_start)


def test_a_stat_line_is_read_field_by_field() -> None:
    process = parse_stat(stat())

    assert process.identity == Identity(4670, 107917)
    assert process.pid == 4670
    assert (process.parent_pid, process.name, process.state) == (4658, "cat", "R")
    assert (process.threads, process.cpu_seconds) == (3, 2.0)
    assert process.resident_bytes == parse_resident_bytes("765 411 300 5 0 90 0")
    assert process.alive
    assert not process.kernel_thread


@pytest.mark.parametrize(
    "name", ["", "a b", "a) R 1 (b", "((", "))", "two\nlines", "1 (x) Z 2 3", "träger"]
)
def test_a_name_may_hold_anything(name: str) -> None:
    process = parse_stat(stat(name))
    assert (process.name, process.pid, process.parent_pid) == (name, 4670, 4658)


def test_a_name_cut_inside_a_letter_is_no_error() -> None:
    assert (
        parse_stat(stat("trainä").encode().replace(b"\xa4", b"").decode("utf-8", "replace")).name
        == "train�"
    )


@pytest.mark.parametrize(
    "line", ["", "4670", "4670 (cat)", "4670 (cat) R 1 2", stat().replace("107917", "x")]
)
def test_what_is_no_stat_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a process"):
        parse_stat(line)


@pytest.mark.parametrize(
    ("state", "alive"),
    [("R", True), ("S", True), ("D", True), ("T", True), ("Z", False), ("X", False)],
)
def test_the_dead_are_not_alive(state: str, *, alive: bool) -> None:
    assert parse_stat(stat(state=state)).alive is alive


def test_kernel_threads_are_distinguished() -> None:
    assert parse_stat(stat(flags=0x00208040)).kernel_thread


def test_the_mark_changes_with_the_program_and_with_the_name() -> None:
    marks = {
        parse_stat(line).exec_mark
        for line in (stat(), stat(arg_start=8), stat("dog"), stat(), stat(state="S"))
    }
    assert len(marks) == 3


@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        (b"python\0train.py\0--lr\x000.1\0", ("python", "train.py", "--lr", "0.1")),
        (b"sh\0-c\0a  b\0", ("sh", "-c", "a  b")),
        (b"a\0\0b\0", ("a", "", "b")),
        (b"ray::Worker.run\0\0\0\0\0", ("ray::Worker.run",)),
        (b"", ()),
        (b"caf\xe9\0", ("caf�",)),
    ],
)
def test_a_command_line_is_its_arguments(data: bytes, arguments: tuple[str, ...]) -> None:
    assert parse_command_line(data) == arguments


def test_of_two_variables_with_one_name_the_first_counts() -> None:
    data = b"ROLE=rollout\0EMPTY=\0ROLE=trainer\0A=b=c\0garbage\0"

    assert parse_environment(data) == {"ROLE": "rollout", "EMPTY": "", "A": "b=c"}


def test_cgroups_of_both_versions_are_read() -> None:
    text = "4:memory:/job/a:b\n1:name=systemd:/system.slice/x.service\n0::/user.slice (deleted)\n"

    assert parse_cgroups(text) == (
        Cgroup("memory", "/job/a:b"),
        Cgroup("name=systemd", "/system.slice/x.service"),
        Cgroup("", "/user.slice"),
    )


def test_transfers_are_those_with_storage() -> None:
    text = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 512\n"

    assert parse_transfers(text) == Transfers(4096, 512)
    with pytest.raises(ValueError, match="read_bytes"):
        parse_transfers("rchar: 9\n")


def test_the_limit_of_open_files_is_the_soft_one() -> None:
    text = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024      {} files\n"

    assert parse_open_files_limit(text.format("524288")) == 1024
    assert parse_open_files_limit("Max open files  unlimited  unlimited files") == math.inf
    with pytest.raises(ValueError, match="Max open files"):
        parse_open_files_limit("Max processes 3 3 processes")


def test_pss_is_in_bytes() -> None:
    text = (
        "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:  300 kB\nPss:   120 kB\nPss_Dirty: 9 kB\n"
    )

    assert parse_pss(text) == (120 * 1024, 0)
    assert parse_pss(f"{text}Pss_File: 30 kB\n") == (120 * 1024, 30 * 1024)
    with pytest.raises(ValueError, match="Pss"):
        parse_pss("Rss: 300 kB\n")
