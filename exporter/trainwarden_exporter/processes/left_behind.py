"""Processes that a finished command of `trainwarden run` has left behind: nobody watches them."""

from __future__ import annotations

from collections.abc import Iterable

from trainwarden_exporter.processes.announcements import Announcement
from trainwarden_exporter.processes.procfs import Identity, is_alive


def count_left_behind(announcements: Iterable[Announcement]) -> int:
    """Returns how many of the processes that the commands have left behind still live. Blocks."""
    left = (Identity(*one) for found in announcements for one in found.goes_on)
    return sum(map(is_alive, left))


def describe_left_behind(count: int) -> str:
    """Returns what has become of a command, as a clause about it."""
    go = "1 process of it goes" if count == 1 else f"{count} processes of it go"
    start = "start it without `nohup` and `&`"
    return f"its command has ended, and {go} on, which nobody watches: {start}"
