"""What the newer means and calls look like in the journal, in words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.samples import NOW

from trainwarden_remediator.journal import event_text
from trainwarden_remediator.journal.rows import Event


def reported(kind: str, **facts: Any) -> str:
    return event_text.describe(
        Event(
            id=1,
            at=NOW,
            incident=1,
            action=2,
            kind=kind,
            alert="TrainingX",
            run="demo",
            worker="a",
            facts=facts,
        )
    )


@pytest.mark.parametrize(
    ("kind", "facts", "words"),
    [
        ("requeue", {"manager": "slurm", "what": "job 7"}, "slurm: requeue job 7"),
        ("cancel", {"manager": "slurm", "what": "job 7"}, "slurm: cancel job 7"),
        (
            "restart",
            {"manager": "kubernetes", "what": "pod a", "uid": "u"},
            "kubernetes: restart pod a",
        ),
        ("restart", {"manager": "command", "what": "/opt/r"}, "command: restart /opt/r"),
        ("output", {"status": 0, "output": "done"}, "status 0: done"),
        ("output", {"status": None, "output": ""}, "timed out: "),
        ("paged", {"rung": 1}, "the on-call is notified"),
        ("decision", {"verdict": "act", "reason": "notify"}, "TrainingX: act: notify the on-call"),
    ],
)
def test_every_step_has_words(kind: str, facts: dict[str, Any], words: str) -> None:
    assert reported(kind, **facts) == words


def test_what_a_command_says_cannot_fake_a_line() -> None:
    event = Event(1, NOW, 1, 2, "output", "", "demo", "a", {"status": 1, "output": "x\n\x1b[2Jy"})
    assert event_text.format_line(event).count("\n") == 0
    assert "\x1b" not in event_text.format_line(event)
