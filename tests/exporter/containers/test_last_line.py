from __future__ import annotations

import pytest

from trainwarden_exporter.containers.history import last_line, stabilise, strip_control_characters


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("CUDA error: out of memory", "CUDA error: out of memory"),
        ("\x1b[31mCUDA error\x1b[0m: \x1b[1;4mout\x1b[m", "CUDA error: out"),
        ("\x1b]0;title\x07done", "done"),
        ("  much \t room  ", "much room"),
        ("bell\x07 and null\x00.", "bell and null ."),
        ("  3%|   |\r 50%|==  |\r100%|====|", "100%|====|"),
        ("kept\r", "kept"),
        ("\u202eturned around", "turned around"),
        ("ünïcode 完了", "ünïcode 完了"),
        ("", ""),
        ("\x1b[2K", ""),
    ],
)
def test_a_line_is_shown_as_an_operator_would_read_it(line: str, shown: str) -> None:
    assert strip_control_characters(line) == shown


def test_a_long_line_is_cut() -> None:
    assert strip_control_characters("x" * 10_000) == "x" * 200


def test_an_empty_line_says_nothing() -> None:
    assert last_line(["first", "RuntimeError: no", "", "  "]) == "RuntimeError: no"
    assert last_line([]) == ""


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("12:00:03 worker 17 died", "12:00:20 worker 4711 died"),
        ("at 0x7fbc01: fault", "at 0x55aa99: fault"),
        ("loss 3", "loss 4"),
    ],
)
def test_numbers_alone_make_no_other_line(before: str, message: str) -> None:
    assert stabilise(message, before) == before


def test_other_words_do() -> None:
    assert stabilise("disk full", "out of memory") == "disk full"
    assert stabilise("first", "") == "first"
    assert stabilise("", "before") == ""
