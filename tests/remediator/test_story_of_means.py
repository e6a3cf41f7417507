"""What the newer means and calls look like in the journal, in words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.remediator.conftest import NOW

from trainwarden_remediator import story
from trainwarden_remediator.records import Event


def told(kind: str, **facts: Any) -> str:
    return story.sentence(
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
        ("said", {"status": 0, "output": "done"}, "status 0: done"),
        ("said", {"status": None, "output": ""}, "took too long: "),
        ("asked", {"rung": 1}, "a person is asked to look"),
        ("decision", {"verdict": "act", "reason": "notify"}, "TrainingX: act: call a person"),
    ],
)
def test_every_step_has_words(kind: str, facts: dict[str, Any], words: str) -> None:
    assert told(kind, **facts) == words


def test_what_a_command_says_cannot_fake_a_line() -> None:
    event = Event(1, NOW, 1, 2, "said", "", "demo", "a", {"status": 1, "output": "x\n\x1b[2Jy"})
    assert story.line(event).count("\n") == 0
    assert "\x1b" not in story.line(event)
