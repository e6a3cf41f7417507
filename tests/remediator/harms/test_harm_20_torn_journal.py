"""Harm 20: a journal that is torn, or cannot be written, is taken for an empty one."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import NOW, ROLLOUT, make_alert

from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.journal import Journal

SAMPLES = 120


def written(path: Path, clock: FakeClock) -> None:
    """A journal of one incident and three actions, all of it in the one file."""
    journal = Journal(path, clock=clock)
    journal.record_alerts([make_alert()])
    (incident,) = journal.open_incidents()
    for _ in range(3):
        action = journal.record_intent(incident.id, ROLLOUT, "restart", ())
        journal.record_step(action, "stop")
        journal.record_result(action, "done")
        journal.record_outcome(action, "not_healed")
    journal.close()


def test_cut_off_anywhere_it_is_refused_and_never_taken_for_a_new_one(
    tmp_path: Path, clock: FakeClock
) -> None:
    written(tmp_path / "whole.db", clock)
    whole = (tmp_path / "whole.db").read_bytes()
    chance = random.Random(20)  # noqa: S311 - the same places each time
    places = {*range(24), *(chance.randrange(len(whole)) for _ in range(SAMPLES))}
    for number, size in enumerate(sorted(places)):
        torn = tmp_path / f"{number}.db"
        torn.write_bytes(whole[:size])
        with pytest.raises(JournalError):
            Journal(torn, clock=clock)
        assert torn.read_bytes() == whole[:size], "it was written to"


def test_a_journal_with_a_torn_log_has_lost_no_synced_action(
    tmp_path: Path, clock: FakeClock
) -> None:
    journal = Journal(tmp_path / "journal.db", clock=clock)
    journal.record_alerts([make_alert()])
    (incident,) = journal.open_incidents()
    sizes = []
    log = tmp_path / "journal.db-wal"
    for _ in range(4):
        action = journal.record_intent(incident.id, ROLLOUT, "restart", ())
        journal.record_step(action, "stop")
        sizes.append(log.stat().st_size)
    main, written_log = (tmp_path / "journal.db").read_bytes(), log.read_bytes()
    journal.close()
    for count, size in enumerate(sizes, 1):
        # cut in the middle of what came after
        for cut in (size, size + 1, size + 700):
            folder = tmp_path / f"{count}-{cut}"
            folder.mkdir()
            (folder / "journal.db").write_bytes(main)
            (folder / "journal.db-wal").write_bytes(written_log[:cut])
            again = Journal(folder / "journal.db", clock=clock)
            assert len(again.past_actions(NOW - 10)) == count
            again.close()
            shutil.rmtree(folder)
