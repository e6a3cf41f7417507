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


def test_alerts_that_read_alike_are_one_line() -> None:
    """TrainingPersonNotReached fires for each receiver that is not reached."""
    alert = {
        "alert": "TrainingPersonNotReached",
        "run": "",
        "worker": "",
        "who_acts": "You, now",
        "handling": "the remediator takes no action on it",
    }
    remediator = {"holds": [], "firing": [alert, dict(alert)], "actions": []}
    status = {
        "host": "host",
        "headline": "",
        "who_acts": "",
        "how": "",
        "first_steps": {},
        "problems": [],
        "runs": [],
        "remediator": remediator,
    }
    lines = list(describe(status, every=True))
    assert sum("TrainingPersonNotReached" in line for line in lines) == 1
