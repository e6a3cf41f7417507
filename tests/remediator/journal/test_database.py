"""The journal as a file: what is relied on, what is refused, what an earlier version left."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.remediator.fake_clock import FakeClock
from tests.remediator.samples import NOW, ROLLOUT, TRAINER, make_alert

from trainwarden_exporter.processes.procfs import Identity
from trainwarden_remediator.exceptions import JournalError
from trainwarden_remediator.journal.database import (
    VERSION,
    JournalFile,
    connect,
    offline_transaction,
    open_database,
)
from trainwarden_remediator.journal.journal import Journal
from trainwarden_remediator.journal.rows import read_events
from trainwarden_remediator.model import Decision, Incident, PastAction, Verdict
from trainwarden_remediator.report.loader import created_at, read_incident
from trainwarden_remediator.report.summary import headline

VERSION_1 = """
CREATE TABLE incident (
    id INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    starts_at REAL NOT NULL,
    alert TEXT NOT NULL,
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    remediation TEXT NOT NULL,
    labels TEXT NOT NULL,
    first_heard REAL NOT NULL,
    last_heard REAL NOT NULL,
    resolved_at REAL,
    closed TEXT,                 -- why it is decided no more; NULL while it is
    said TEXT,                   -- verdict and reason last written down
    target_run TEXT,             -- the worker it turned out to be about
    target_worker TEXT,
    UNIQUE (fingerprint, starts_at)
);
CREATE INDEX incident_open ON incident (id) WHERE closed IS NULL;
CREATE TABLE action (
    id INTEGER PRIMARY KEY,
    incident INTEGER NOT NULL REFERENCES incident (id),
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    kind TEXT NOT NULL,
    intent_at REAL NOT NULL,
    processes TEXT NOT NULL,     -- what the target consisted of when the intent was formed
    reached TEXT,                -- the last step announced before it was taken
    result TEXT,
    result_at REAL,
    outcome TEXT,
    outcome_at REAL
);
CREATE INDEX action_target ON action (run, worker, intent_at);
CREATE TABLE event (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    incident INTEGER,
    action INTEGER,
    kind TEXT NOT NULL,
    facts TEXT NOT NULL
);
CREATE TABLE tally (
    metric TEXT NOT NULL,
    labels TEXT NOT NULL,
    value REAL NOT NULL,
    PRIMARY KEY (metric, labels)
);
CREATE TABLE moment (name TEXT PRIMARY KEY, at REAL NOT NULL);
"""

# what version 2 added
TO_VERSION_2 = """
ALTER TABLE incident ADD COLUMN said_at REAL;
ALTER TABLE incident ADD COLUMN closed_at REAL;
ALTER TABLE action ADD COLUMN rung INTEGER NOT NULL DEFAULT 0;
ALTER TABLE action ADD COLUMN step REAL;
ALTER TABLE action ADD COLUMN checkpoint REAL;
ALTER TABLE incident ADD COLUMN annotations TEXT NOT NULL DEFAULT '{}';
CREATE TABLE evidence (
    id INTEGER PRIMARY KEY,
    incident INTEGER NOT NULL,
    action INTEGER,
    kind TEXT NOT NULL,
    at REAL NOT NULL,
    content TEXT NOT NULL
);
CREATE UNIQUE INDEX evidence_of ON evidence (incident, coalesce(action, 0), kind);
CREATE TABLE member (
    run TEXT NOT NULL,
    worker TEXT NOT NULL,
    boot TEXT NOT NULL,
    root_pid INTEGER NOT NULL,
    root_start_ticks INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    PRIMARY KEY (run, worker, boot, root_pid, root_start_ticks, pid, start_ticks)
);
CREATE TABLE notice (
    id INTEGER PRIMARY KEY,
    receiver TEXT NOT NULL,
    occasion TEXT NOT NULL,
    subject TEXT NOT NULL,
    about TEXT NOT NULL,
    line INTEGER NOT NULL,
    at REAL NOT NULL,
    settled TEXT,
    settled_at REAL,
    UNIQUE (receiver, occasion, subject)
);
CREATE INDEX notice_waiting ON notice (receiver, id) WHERE settled IS NULL;
CREATE TABLE told (line INTEGER NOT NULL);
INSERT INTO told SELECT max(id) FROM event HAVING max(id) IS NOT NULL;
CREATE TABLE journal AS SELECT lower(hex(randomblob(8))) AS name;
"""


def only(journal: Journal) -> Incident:
    (incident,) = journal.open_incidents()
    return incident


def test_a_journal_of_version_1_is_gone_on_with(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "journal.db"
    old = sqlite3.connect(path)
    old.executescript(VERSION_1)
    old.execute(
        "INSERT INTO incident VALUES (1, ?, ?, 'A', 'demo', 'rollout-0', 'restart_leaking_worker',"
        " '{}', ?, ?, NULL, NULL, 'wait cooldown', NULL, NULL)",
        ("0" * 16, NOW - 100, NOW - 100, NOW - 10),
    )
    old.execute(
        "INSERT INTO action VALUES (1, 1, 'demo', 'rollout-0', 'restart', ?, '[[11, 100]]',"
        " 'start', 'done', ?, 'healed', ?)",
        (NOW - 90, NOW - 80, NOW - 70),
    )
    old.execute("PRAGMA user_version = 1")
    old.commit()
    old.close()
    journal = Journal(path, clock=clock)
    assert only(journal).last_decision == "wait cooldown"
    assert journal.past_actions(0) == (
        PastAction(
            *(1, ROLLOUT, NOW - 90, NOW - 70),
            healed=True,
            result="done",
            result_at=NOW - 80,
            alert="A",
        ),
    )
    assert journal.record_intent(1, ROLLOUT, "restart", (), rung=1, step=5, checkpoint=4) == 2
    journal.record_decisions([(only(journal), Decision(Verdict.WAIT, "saving"))])
    assert only(journal).last_decided_at == NOW
    journal.close()
    again = Journal(path, clock=clock)
    assert [action.rung for action in again.past_actions(0)] == [0, 1]
    again.close()


def test_an_old_journal_becomes_what_a_new_one_is(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "old.db")
    old.executescript(f"{VERSION_1} PRAGMA user_version = 1;")
    old.close()
    shapes = []
    for name in ("old.db", "new.db"):
        file = JournalFile(tmp_path / name)
        tables = [row[0] for row in file.read("SELECT name FROM sqlite_master ORDER BY name")]
        columns = {
            table: [tuple(row)[1:4] for row in file.read(f"PRAGMA table_info({table})")]
            for table in tables
        }
        assert file.read("PRAGMA user_version")[0][0] == VERSION
        shapes.append(columns)
        file.close()
    assert shapes[0] == shapes[1]


def test_a_journal_of_version_2_is_migrated(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as old:
        old.executescript(f"{VERSION_1} {TO_VERSION_2} PRAGMA user_version = 2;")
        old.execute(
            "INSERT INTO incident VALUES (1, ?, ?, 'A', 'demo', 'rollout-0', 'restart_worker',"
            " '{}', ?, ?, NULL, NULL, 'wait cooldown', NULL, NULL, ?, NULL, '{}')",
            ("0" * 16, NOW - 100, NOW - 100, NOW - 10, NOW - 5),
        )
        old.execute("INSERT INTO event VALUES (1, ?, NULL, NULL, 'silent', '{}')", (NOW,))
        old.execute("INSERT INTO moment VALUES ('breaker', ?)", (NOW - 7,))
        old.commit()
    with closing(Journal(path, clock=clock)) as journal:
        assert only(journal).last_decision == "wait cooldown"
        assert only(journal).last_decided_at == NOW - 5
        assert only(journal).last_received_at == NOW - 10
        assert journal.breaker().opened_at == NOW - 7
        assert [event.kind for event in journal.newest_events(1)] == ["alerts_stale"]


# what versions 4 to 7 added
TO_VERSION_3 = """
ALTER TABLE incident DROP COLUMN blocked_since;
ALTER TABLE action DROP COLUMN account;
ALTER TABLE journal DROP COLUMN created;
ALTER TABLE incident DROP COLUMN last_detail;
DROP INDEX incident_part;
ALTER TABLE incident DROP COLUMN part_of;
ALTER TABLE action DROP COLUMN attempt;
ALTER TABLE action DROP COLUMN attempts;
"""


def test_a_journal_of_version_3_is_migrated(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "journal.db"
    Journal(path, clock=clock).close()
    with closing(sqlite3.connect(path)) as old:
        old.executescript(f"{TO_VERSION_3} PRAGMA user_version = 3;")
        old.execute(
            "INSERT INTO incident VALUES (1, ?, ?, 'A', 'demo', 'rollout-0', 'restart_worker',"
            " '{}', ?, ?, NULL, NULL, 'wait cooldown', NULL, NULL, ?, NULL, '{}')",
            ("0" * 16, NOW - 100, NOW - 100, NOW - 10, NOW - 5),
        )
        old.commit()
    with closing(Journal(path, clock=clock)) as journal:
        found = only(journal)
        assert (found.last_decision, found.last_detail) == ("wait cooldown", "")
        again = Decision(Verdict.WAIT, "busy", detail="until 08:01:40 UTC")
        assert journal.record_decisions([(found, again)])
        assert only(journal).last_detail == "until 08:01:40 UTC"


NO_BEGIN = {"(name, created REAL)": "(name)", ",1795978367.0)": ")"}
TO_VERSION_6 = {
    "COMMIT;\n": "ALTER TABLE action ADD COLUMN account INTEGER; COMMIT;",
    "user_version = 5": "user_version = 6",
}


@pytest.mark.parametrize("changes", [{}, NO_BEGIN, TO_VERSION_6])
def test_a_journal_of_version_5_or_6_is_migrated(
    tmp_path: Path, clock: FakeClock, changes: dict[str, str]
) -> None:
    """The remediator of version 5 wrote the file; the first of them did not record its begin."""
    path = tmp_path / "journal.db"
    written = Path(__file__).with_name("version_5.sql").read_text(encoding="utf-8")
    for old_text, text in changes.items():
        assert written.count(old_text) == 1
        written = written.replace(old_text, text)
    with closing(sqlite3.connect(path)) as old:
        old.executescript(written)
    with closing(Journal(path, clock=clock)) as journal:
        assert journal.file.read("PRAGMA user_version")[0][0] == VERSION
        ended, healed = journal.past_actions(0)
        assert [one.healed for one in (ended, healed)] == [False, True]
        assert (healed.attempt, healed.account) == (1, None)
        taken_over = [
            event.facts.get("taken_over")
            for event in journal.newest_events(99)
            if event.kind == "outcome"
        ]
        assert taken_over == ["ended_with_run", "started_by_operator"]
        results = (one for one in journal.newest_events(99) if one.kind == "save_result")
        assert [one.facts["sent"] for one in results] == [True, False]
        saved = journal.last_save_request(TRAINER, [Identity(11, 100)], 0)
        assert saved is not None
        assert only(journal).worker == "trainer"
        journal.record_intent(2, TRAINER, "restart", (), attempt=(2, 3), account=1000)
        assert journal.past_actions(0)[-1].account == 1000
    with open_database(path, mode="ro") as connection:
        assert created_at(connection) == (0.0 if changes is NO_BEGIN else 1795978367.0)
        incident = read_incident(connection, 1)
        assert incident is not None
        assert headline(incident).word == "started by an operator"


def test_why_an_incident_was_closed_is_migrated_to_the_current_reasons(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    with closing(sqlite3.connect(path)) as old:
        old.executescript(f"{VERSION_1} {TO_VERSION_2} PRAGMA user_version = 2;")
        columns = [row[1] for row in old.execute("PRAGMA table_info(incident)")]
        values: dict[str, object] = dict.fromkeys(columns)
        values.update(
            id=1,
            fingerprint="0" * 16,
            starts_at=NOW - 100,
            alert="A",
            run="demo",
            worker="rollout-0",
            remediation="restart_worker",
            labels="{}",
            first_heard=NOW - 100,
            last_heard=NOW - 10,
            closed="goes_on",
            said="refuse goes_on",
        )
        given = {**values, "annotations": "{}"}
        marks = ", ".join("?" * len(columns))
        old.execute(f"INSERT INTO incident VALUES ({marks})", tuple(given.values()))  # noqa: S608
        old.commit()
    with closing(Journal(path, clock=clock)) as journal:
        rows = journal.file.read("SELECT closed, last_decision FROM incident")
        assert [tuple(row) for row in rows] == [("progressing", "refuse progressing")]


def test_an_emptied_journal_is_refused_and_not_begun_again(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    Journal(path, clock=clock).close()
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(JournalError, match="empty: its content is lost"):
            Journal(path, clock=clock)
    path.unlink()
    with pytest.raises(JournalError, match="missing: its content is lost"):
        Journal(path, clock=clock)
    Path(f"{path}.lock").unlink()
    Journal(path, clock=clock).close()


def test_a_journal_removed_from_beside_its_log_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "journal.db"
    (tmp_path / "journal.db-wal").write_bytes(b"x" * 5000)
    with pytest.raises(JournalError, match=r"journal\.db-wal exists"):
        Journal(path, clock=clock)
    assert not path.exists()


def test_a_database_of_something_else_is_refused_and_left_alone(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE thesis (page TEXT)")
    other.close()
    with pytest.raises(JournalError, match="a database, but not a journal"):
        Journal(path, clock=clock)
    kept = sqlite3.connect(path)
    assert kept.execute("SELECT name FROM sqlite_master").fetchall() == [("thesis",)]
    kept.close()


BEGIN_AND_DIE = """
import os, signal, sys
from pathlib import Path
from trainwarden_remediator.journal import database
path = Path(sys.argv[1])
Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
database.JournalFile(path)
"""


def test_a_kill_while_it_is_begun_leaves_nothing_in_the_way(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    died = subprocess.run([sys.executable, "-c", BEGIN_AND_DIE, path], check=False)
    assert died.returncode == -signal.SIGKILL
    assert not path.exists()
    assert (tmp_path / "journal.db.new").exists()
    journal = Journal(path, clock=clock)
    journal.record_alerts([make_alert()])
    assert only(journal).alert
    assert not (tmp_path / "journal.db.new").exists()
    journal.close()


def test_a_file_that_is_no_journal_is_refused_and_left_alone(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    path.write_text("my thesis\n" * 1000)
    with pytest.raises(JournalError, match="not a database"):
        Journal(path, clock=clock)
    assert path.read_text() == "my thesis\n" * 1000


def test_a_journal_of_another_version_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "journal.db"
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version = {VERSION + 1}")
    other.close()
    with pytest.raises(JournalError, match="another version"):
        Journal(path, clock=clock)


@pytest.mark.parametrize("pages", [1, 2, 4, 7])
def test_a_torn_journal_is_refused(tmp_path: Path, clock: FakeClock, pages: int) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path, clock=clock)
    journal.record_alerts([make_alert(fingerprint=f"{index:016x}") for index in range(50)])
    journal.close()
    assert path.stat().st_size > 8 * 4096
    with path.open("r+b") as file:
        file.truncate(pages * 4096 - 100)
    with pytest.raises(JournalError):
        Journal(path, clock=clock)


def test_an_overwritten_page_is_found_at_the_start(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path, clock=clock)
    journal.record_alerts([make_alert(fingerprint=f"{index:016x}") for index in range(50)])
    journal.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 4096)
    with pytest.raises(JournalError):
        Journal(path, clock=clock)


@pytest.mark.parametrize("page", [2, 5, 10, 12])
def test_a_page_that_lies_about_its_rows_is_found_at_the_start(
    tmp_path: Path, clock: FakeClock, page: int
) -> None:
    path = tmp_path / "journal.db"
    journal = Journal(path, clock=clock)
    journal.record_alerts([make_alert(fingerprint=f"{index:016x}") for index in range(50)])
    journal.close()
    with path.open("r+b") as file:
        file.seek(page * 4096 + 3)
        file.write(b"\x00\x01")
    with pytest.raises(JournalError, match="damaged: ") as caught:
        Journal(path, clock=clock)
    assert "\n" not in str(caught.value)


def test_a_place_where_nothing_can_be_written_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="file"):
        Journal(tmp_path / "file" / "journal.db", clock=clock)
    (tmp_path / "folder").mkdir()
    with pytest.raises(JournalError, match="Is a directory"):
        Journal(tmp_path / "folder", clock=clock)
    with pytest.raises(JournalError, match="unable to open"):
        connect(tmp_path / "nowhere.db", mode="ro")


def test_a_journal_that_was_refused_is_not_kept_locked(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "journal.db"
    path.write_text("my thesis\n" * 1000)
    with pytest.raises(JournalError):
        Journal(path, clock=clock)
    path.unlink()
    Journal(path, clock=clock).close()


def test_reading_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    sqlite3.connect(path).close()
    path.touch()
    with (
        pytest.raises(JournalError, match=r"journal.db: no such table"),
        open_database(path, mode="ro") as reader,
    ):
        list(read_events(reader))


def test_no_two_journals_mark_what_they_start_alike(tmp_path: Path, clock: FakeClock) -> None:
    marks = []
    for name in ("one", "one", "other"):
        journal = Journal(tmp_path / name, clock=clock)
        marks.append(journal.action_token(ROLLOUT, 7))
        journal.close()
    first, again, other = marks
    assert first == again != other
    assert first.startswith("demo/rollout-0/7/")


def test_a_journal_of_a_newer_version_is_not_written_from_outside(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    Journal(path, clock=clock).close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(JournalError, match="another version"), offline_transaction(path) as db:
        db.execute("DELETE FROM event")
