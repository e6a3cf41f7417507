"""What the compose stack does at its first start, before anything else runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from stack import PROJECT
from trainwarden_exporter.config import load_config
from trainwarden_remediator.credentials.bearer_tokens import BearerTokens

COMPOSE = PROJECT / "deploy" / "compose"


def run(script: str, *arguments: str | Path) -> None:
    # -S: in a container they have the standard library alone
    subprocess.run([sys.executable, "-S", COMPOSE / script, *arguments], check=True)


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    run("make_secrets.py", token)
    first = token.read_text()
    BearerTokens(token).read()
    run("make_secrets.py", token, password)
    assert token.read_text() == first
    assert password.read_text() not in ("", first)
    assert sorted(tmp_path.iterdir()) == [password, token]


def test_one_whose_making_was_cut_short_is_recreated(tmp_path: Path) -> None:
    (tmp_path / ".token").write_text("12")
    run("make_secrets.py", tmp_path / "token")
    assert len((tmp_path / "token").read_text().strip()) == 64


def test_the_demos_configuration_is_good_and_one_worker_will_leak(tmp_path: Path) -> None:
    template = (PROJECT / "examples/demo/exporter.yml").read_text(encoding="utf-8")
    script = (
        "import sys, pathlib, prepare_demo as p; p.prepare(pathlib.Path(sys.argv[1]), sys.argv[2])"
    )
    subprocess.run(
        [sys.executable, "-S", "-c", script, tmp_path, template], cwd=COMPOSE, check=True
    )
    (demo,) = load_config(tmp_path / "exporter.yml").runs
    assert {worker.name for worker in demo.workers} == {
        "inference",
        "trainer",
        "rollout-0",
        "rollout-1",
    }
    assert (tmp_path / "demo/faults/rollout-1").read_text() == "leak\n"
    assert not re.search(r"\$\{\w", (tmp_path / "exporter.yml").read_text())
