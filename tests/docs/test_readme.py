"""README.md and docs/your-run.md are short, and their commands and files work."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from trainwarden import cli
from trainwarden_exporter.__main__ import main as exporter
from trainwarden_exporter.app import COLLECTORS
from trainwarden_exporter.frameworks import FRAMEWORKS
from trainwarden_remediator.__main__ import main as remediator

PROJECT = Path(__file__).parents[2]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
YOUR_RUN = (PROJECT / "docs" / "your-run.md").read_text(encoding="utf-8")
LONGEST = 150
"""Lines; a reader should get through them before the first try."""
FEWEST_LINKS = 25


def blocks(kind: str, page: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)


def test_it_is_read_in_a_few_minutes() -> None:
    assert README.count("\n") <= LONGEST
    assert YOUR_RUN.count("\n") <= 200


def test_the_virtual_environment_of_the_reader_stays_first() -> None:
    """`trainwarden run -- python train.py` would otherwise run the python of Trainwarden."""
    assert re.findall(r"export PATH=(\S+)", README + YOUR_RUN) == ["$PATH:$PWD/.venv/bin"] * 2


def test_the_leak_to_try_is_healed_by_each_restart() -> None:
    """A restart is verified after 36 s: its run must not be above its limit again by then."""
    example = runpy.run_path(str(PROJECT / "examples" / "plain" / "train.py"))
    ((limit, pace),) = re.findall(
        r"--memory-limit (\d+)MiB -- python examples/plain/train\.py --leak(?:.*-seconds (\d+))?",
        README,
    )
    pytorch = 220  # MiB that its import takes
    per_second = (example["LEAK_BYTES_PER_STEP"] >> 20) / float(pace or 0.5)
    assert (int(limit) - pytorch) / per_second >= 60
    assert int(limit) << 20 < example["LEAK_CEILING"]


def test_every_link_and_picture_is_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    links = [link for link in links if "://" not in link]
    assert len(links) > FEWEST_LINKS
    assert [link for link in links if not (PROJECT / link.partition("#")[0]).exists()] == []
    assert any(link.endswith(".png") for link in re.findall(r"!\[[^]]+\]\(([^)]+)\)", README))


def test_every_framework_is_named_with_its_example() -> None:
    rows = re.findall(
        r"^\| [^|]+ \| `(\w+)` \| [^|]+ \| \[(.+?)\]\((.+?)\) \|$", YOUR_RUN, re.MULTILINE
    )
    known = [framework.name for framework in FRAMEWORKS if framework.name != "generic"]
    assert rows == [(name, f"examples/{name}", f"../examples/{name}") for name in known]
    assert [name for name in known if f"](examples/{name})" not in README] == []


def test_every_collector_is_named() -> None:
    named = re.findall(r"^\| `(\w+)` \| ", YOUR_RUN, re.MULTILINE)
    assert sorted(named) == sorted(collector.name for collector in COLLECTORS)


def test_the_files_it_shows_are_accepted_and_fit_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (watched, healed) = blocks("yaml", YOUR_RUN)
    (called,) = blocks("yaml", README)
    assert len(called.splitlines()) == 1
    (tmp_path / "exporter.yml").write_text(watched)
    (tmp_path / "remediator.yml").write_text(f"{healed}\n{called}")
    assert exporter(["check", str(tmp_path / "exporter.yml")]) == 0
    assert remediator(["check", str(tmp_path / "remediator.yml")]) == 0
    assert "ok (mode observe, 1 target)" in capsys.readouterr().out


def test_every_command_it_shows_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    page = README + YOUR_RUN
    shown = "\n".join((*blocks("console", page), *re.findall(r"`([^`\n]+)`", page)))
    commands = set(re.findall(r"\btrainwarden ([a-z-]+)", shown))
    assert {"run", "discover", "check", "journal"} <= commands
    assert not re.search(r"\btrainwarden-(?:exporter|remediator) [a-z]", shown)
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            cli.main([command, "--help"])
        assert ended.value.code == 0, (command, capsys.readouterr().err)


def test_every_target_of_make_it_names_is_there() -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z-]+)\b", README + YOUR_RUN))
    assert {"up", "test"} <= named
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
