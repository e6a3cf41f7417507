"""A journal of 2 GB: `journal` reads no more of it than it shows."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.remediator.samples import make_alert

from trainwarden_remediator.journal.journal import Journal

SIZE = 1_900_000_000
MOST_MEMORY_KIB = 150 << 10
MOST_READ = 64 << 20
INCIDENT = 7

MEASURED = """
import resource, sys
from trainwarden_remediator.__main__ import main
status = main(["journal", "--json", *sys.argv[1:]])
sys.stdout.flush()
read = next(line for line in open("/proc/self/io") if line.startswith("rchar:")).split()[1]
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, read, file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    (folder / "exporter.yml").write_text("{}\n")
    config = folder / "remediator.yml"
    config.write_text("exporter: {config: exporter.yml}\njournal: journal.db\ninsecure: true\n")
    path = folder / "journal.db"
    journal = Journal(path, clock=time.time)
    journal.record_alerts([make_alert(fingerprint=f"{number:016}") for number in range(INCIDENT)])
    journal.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous = OFF")
        while path.stat().st_size < SIZE:
            db.execute(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)"
                " INSERT INTO event (at, incident, kind, facts) SELECT ? + i / 1e6, i % 1000 + 1,"
                " 'decision', '{\"padding\": \"' || hex(zeroblob(1000)) || '\"}' FROM n",
                (time.time() - 86400,),
            )
            db.commit()
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return config


def journal(config: Path, *options: str) -> tuple[int, int, int]:
    """Returns the number of lines, the peak memory in KiB and the bytes read."""
    command = [sys.executable, "-c", MEASURED, f"--config.file={config}", *options]
    done = subprocess.run(command, capture_output=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stderr
    memory, read = done.stderr.split()[-2:]
    return done.stdout.count(b"\n"), int(memory), int(read)


def test_the_newest_events_are_shown_without_the_others_being_read(config: Path) -> None:
    lines, memory, read = journal(config)
    assert lines == 1000
    assert memory < MOST_MEMORY_KIB
    assert read < MOST_READ


@pytest.mark.parametrize("options", [["--incident", str(INCIDENT)], ["-n", "100000"]])
def test_of_many_events_few_are_in_memory(config: Path, options: list[str]) -> None:
    lines, memory, _ = journal(config, *options)
    assert lines >= 100
    assert memory < MOST_MEMORY_KIB
