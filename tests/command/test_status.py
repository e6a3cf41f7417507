"""What `trainwarden status` prints of an answer that another program may have given."""

from __future__ import annotations

from trainwarden.commands.status import describe


def test_no_line_has_characters_that_move_the_cursor() -> None:
    status = {
        "host": "host",
        "headline": "\x1b[2Jall is well",
        "who_acts": "Nobody",
        "how": "\x1b]52;c;bHM=\x07",
        "first_steps": {"a\nb": "\r"},
        "problems": [],
        "runs": [{"text": "\u202erun"}],
        "remediator": None,
    }
    lines = describe(status, every=True)
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
