"""The journal and the plan on a terminal: within its width, and in colours unless they are off."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.rows import Event
from trainwarden_remediator.journal.terminal import (
    fit,
    format_event,
    has_colours,
    terminal_width,
)

WHAT = "terminated process 4242, and " * 8


def event(kind: str = "alert", **facts: Any) -> Event:
    return Event(7, 1_800_000_000.0, 3, None, kind, WHAT.strip(), "demo", "rollout-0", facts)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_lost(width: int) -> None:
    whole = event_text.format_line(event())
    shown = format_event(event(), width=width, colours=False)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.split() == whole.split()


def test_a_wide_terminal_keeps_the_last_column_in_its_place() -> None:
    first, *rest = format_event(event(), width=120, colours=False).splitlines()
    assert first[event_text.LAST_COLUMN :].startswith("terminated")
    for line in rest:
        assert line[: event_text.LAST_COLUMN].strip() == ""


def test_what_fits_or_goes_elsewhere_stays_one_line() -> None:
    assert fit("time  what", 6, 80) == "time  what"
    assert fit("x" * 200, 6, 0) == "x" * 200


@pytest.mark.parametrize(
    ("kind", "facts", "code"),
    [
        ("alert", {}, "33"),
        ("outcome", {"outcome": "healed", "seconds": 1}, "32"),
        ("outcome", {"outcome": "not_healed", "seen": "x"}, "31"),
        ("decision", {"verdict": "refuse", "reason": "attempts_exhausted"}, "31"),
        ("decision", {"verdict": "wait", "reason": "cooldown"}, ""),
        ("resolved", {}, ""),
    ],
)
def test_how_it_ended_has_a_colour(kind: str, facts: dict[str, Any], code: str) -> None:
    plain = format_event(event(kind, **facts), width=0, colours=False)
    shown = format_event(event(kind, **facts), width=0, colours=True)
    assert re.sub("\x1b.*?m", "", shown) == plain
    assert shown.startswith(f"\x1b[{code}m") is bool(code)


def test_colours_are_for_terminals_alone_and_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "77")
    assert (terminal_width(), has_colours()) == (0, False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert (terminal_width(), has_colours()) == (77, True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colours()
