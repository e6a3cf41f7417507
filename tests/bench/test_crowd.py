"""The crowd is as large as it was asked to be, and its workers are as what trains is."""

from __future__ import annotations

from pathlib import Path

import scrapes
from trainwarden_exporter.processes.procfs import read_command_line, read_processes


def members(program: Path) -> dict[str, list[Path]]:
    """The folders below /proc of a crowd, by the names of its members."""
    found = dict[str, list[Path]]()
    for pid in read_processes():
        words = read_command_line(pid) or ("",)
        if words[0] == str(program):
            found.setdefault(words[-1], []).append(Path(f"/proc/{pid}"))
    return found


def test_workers_have_mappings_and_threads_and_bystanders_have_not(tmp_path: Path) -> None:
    with scrapes.crowd(5, 2, tmp_path):
        found = members(tmp_path / "crowd")
        assert [len(found[name]) for name in ("worker-0", "worker-1", "bystander")] == [1, 1, 3]
        for name, mappings, threads in (
            ("worker-0", scrapes.MAPPINGS, scrapes.THREADS),
            ("bystander", 0, 1),
        ):
            folder = found[name][0]
            there = len((folder / "maps").read_text().splitlines())
            assert mappings <= there < mappings + 60
            assert len(list((folder / "task").iterdir())) == threads
    assert not members(tmp_path / "crowd")
