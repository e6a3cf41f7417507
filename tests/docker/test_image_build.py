"""The image, built by compose itself where no registry can be reached, and what it readies."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import dockerengine
import standins
from ruleset import RULES, read_shipped
from stack import PROJECT
from trainwarden_exporter import __version__

OURS = "trainwarden:local"


class Builder:
    """Compose with the shipped file, and an engine that has nothing but another base."""

    def __init__(self, engine: dockerengine.DockerEngine, folder: Path) -> None:
        self.engine = engine
        # The engine of a test has no bridge; and what is built of a base of ours needs no network.
        own = folder / "network.yml"
        own.write_text("services: {rules: {build: {network: none}}}\n", encoding="utf-8")
        self._files = (f"--file={PROJECT / 'docker-compose.yml'}", f"--file={own}")
        self._program = standins.newest() / "usr/libexec/docker/cli-plugins/docker-compose"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DOCKER_HOST": f"unix://{engine.socket}",
            "DATA": str(folder),
            "BASE": standins.BASE,
        }

    def compose(self, *arguments: str, **environment: str) -> str:
        result = subprocess.run(
            [self._program, "--project-directory", PROJECT, *self._files, *arguments],
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def inside(self, *command: str, volume: str | None = None) -> str:
        """What a command prints in the image, with a volume at /here."""
        mounted = () if volume is None else ("--volume", f"trainwarden_{volume}:/here:ro")
        return self.engine.docker("run", "--rm", "--network=host", *mounted, OURS, *command)


@pytest.fixture(scope="module")
def builder(
    engine: dockerengine.DockerEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Builder]:
    made = Builder(engine, tmp_path_factory.mktemp("build"))
    standins.make_base(engine.docker)
    made.compose("build", "rules")
    yield made
    made.compose("--profile=*", "down", "--volumes")


@pytest.mark.parametrize("profile", ["box", "gpu", "demo"])
def test_compose_takes_the_file_with_each_profile(builder: Builder, profile: str) -> None:
    builder.compose(f"--profile={profile}", "config", "--quiet")


def test_both_programs_are_in_it_and_run_as_nobody(builder: Builder) -> None:
    for program in ("trainwarden-exporter", "trainwarden-remediator"):
        assert __version__ in builder.inside(program, "--version")
    assert builder.inside("id", "-u").strip() == "65534"


def test_prometheus_finds_the_shipped_rules(builder: Builder) -> None:
    builder.compose("up", "--no-build", "--exit-code-from=rules", "rules")
    assert builder.inside("cat", "/here/prometheus.yml", volume="rules") == (
        (RULES / "prometheus.yml").read_text(encoding="utf-8").strip()
    )
    assert read_alerts(builder) == shipped_alerts()


def test_overrides_in_the_folder_of_configuration_change_them(
    builder: Builder, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)  # the container reads it as user nobody
    (tmp_path / "overrides.yml").write_text(
        "alerts: [{alert: TrainingGpuIdle, enabled: false}]\n", encoding="utf-8"
    )
    again = ("up", "--no-build", "--force-recreate", "--exit-code-from=rules", "rules")
    builder.compose(*again, CONFIG=str(tmp_path))
    assert shipped_alerts() - read_alerts(builder) == {"TrainingGpuIdle"}


def shipped_alerts() -> set[str]:
    return alerts(*(group for groups in read_shipped().values() for group in groups))


def read_alerts(builder: Builder) -> set[str]:
    every = 'for file in /here/alerts/*.yml; do cat "$file"; echo ---; done'
    text = builder.inside("sh", "-c", every, volume="rules")
    documents = filter(None, yaml.safe_load_all(text))
    return alerts(*(group for one in documents for group in one["groups"]))


def alerts(*groups: dict[str, list[dict[str, str]]]) -> set[str]:
    return {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
