from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import stack

FAKE_APT = """\
echo "$@" >> "$0.calls"
case "$*" in
  indextargets*) echo "http://mirror.example.org/debian/ stable"; exit 0 ;;
  *update*) exit 0 ;;
  *libjs-*) exit 100 ;;
  *"${REFUSED:-nothing}"*)
    echo 'W: noise' >&2
    echo 'E: no such thing' >&2
    exit 100
    ;;
esac
for name; do :; done
: > "$name.deb"
"""
FAKE_DPKG = """\
[ "$1" = -x ] || { echo "${DEPENDS:-adduser}"; exit 0; }
mkdir -p "$3/usr/bin" "$3/usr/share/prometheus"
echo 'the page' > "$3/usr/share/prometheus/page"
for name in prometheus promtool prometheus-alertmanager amtool; do
  echo '#!/bin/sh' > "$3/usr/bin/$name"
  echo 'echo "x, version 3.1.4"; cat /usr/share/prometheus/page' >> "$3/usr/bin/$name"
  chmod +x "$3/usr/bin/$name"
done
"""


class Machine:
    """A PATH with a shell's tools on it and nothing else, but what a test adds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs = folder / "bin"
        self.stack = folder / "stack"
        self.programs.mkdir()
        for tool in ("sh", "cat", "mkdir", "chmod", "readlink", "dirname"):
            (self.programs / tool).symlink_to(f"/bin/{tool}")
        monkeypatch.setenv("PATH", str(self.programs))
        monkeypatch.setenv("REFUSED", "")
        monkeypatch.delenv("TRAINWARDEN_STACK_SUITE", raising=False)

    def add(self, name: str, script: str) -> Path:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def add_packages(self) -> None:
        self.add("apt-get", FAKE_APT)
        self.add("dpkg-deb", FAKE_DPKG)

    def add_servers(self, prometheus: str = "2.53.1", alertmanager: str = "0.28.0") -> None:
        self.add("prometheus", f"echo 'prometheus, version {prometheus}'")
        self.add("alertmanager", f"echo 'alertmanager, version {alertmanager}' >&2")
        self.add("promtool", "exit 0")
        self.add("amtool", "exit 0")

    def calls(self) -> list[str]:
        return (self.programs / "apt-get.calls").read_text().splitlines()

    def find(self) -> stack.Binaries:
        return stack.find_binaries(self.stack, say=lambda _: None)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prometheus, version 2.42.0+ds (branch: debian/sid)", (2, 42)),
        ("prometheus, version v3.0.0-rc.1", (3, 0)),
        ("alertmanager, version 0.25.0 (branch: …)", (0, 25)),
    ],
)
def test_a_version_is_read(text: str, expected: tuple[int, int]) -> None:
    assert stack.parse_version(text) == expected


def test_a_program_without_a_version_is_not_taken_for_one() -> None:
    with pytest.raises(ValueError, match="no version"):
        stack.parse_version("usage: prometheus [OPTIONS]")


def test_programs_on_path_are_used_and_no_file_is_made(machine: Machine) -> None:
    machine.add_servers()
    assert machine.find().prometheus == machine.programs / "prometheus"
    assert not machine.stack.exists()


def test_debians_name_of_alertmanager_is_known(machine: Machine) -> None:
    machine.add_servers()
    (machine.programs / "alertmanager").rename(machine.programs / "prometheus-alertmanager")
    assert machine.find().alertmanager == machine.programs / "prometheus-alertmanager"


@pytest.mark.parametrize("unusable", ["echo 'prometheus, version 2.31.2'", "exit 127"])
def test_an_old_or_broken_program_on_path_gives_way_to_the_package(
    machine: Machine, unusable: str
) -> None:
    machine.add_servers()
    machine.add("prometheus", unusable)
    machine.add_packages()
    assert machine.find().prometheus == machine.stack / "prometheus/usr/bin/prometheus"


def test_packages_are_unpacked_once_for_all_who_ask(machine: Machine) -> None:
    machine.add_packages()
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: machine.find(), range(4)))
    assert len(found) == 1
    assert sum("download prometheus" in call for call in machine.calls()) == 2  # one a package


def test_an_unpacked_server_reads_its_pages_where_it_was_unpacked(machine: Machine) -> None:
    machine.add_packages()
    server = machine.find().prometheus
    result = subprocess.run([server], cwd="/", capture_output=True, text=True, check=True)
    assert result.stdout.endswith("the page\n")


def test_lists_of_our_own_are_fetched_where_the_systems_do_not_help(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.add_packages()
    monkeypatch.setenv("REFUSED", "Timeout=30 download")  # the call without lists of our own
    machine.find()
    assert any("Dir::State::lists=" in call and "update" in call for call in machine.calls())


def test_a_tool_that_is_a_package_of_its_own_is_fetched_too(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.add_packages()
    monkeypatch.setenv("DEPENDS", "adduser, promtool (>= 3.5), libc6 (>= 2.34)")
    machine.find()
    downloads = [call.split()[-1] for call in machine.calls() if " download " in call]
    assert downloads == ["prometheus", "promtool", "prometheus-alertmanager"]


def test_a_suite_that_is_asked_for_comes_before_what_is_on_path(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.add_servers()
    machine.add_packages()
    monkeypatch.setenv("TRAINWARDEN_STACK_SUITE", "sid")
    assert machine.find().prometheus == machine.stack / "suite-sid/prometheus/usr/bin/prometheus"
    calls = [call for call in machine.calls() if " download " in call or " update" in call]
    assert all("Dir::Etc::sourceparts=-" in call for call in calls)
    assert [call.split()[-1] for call in calls] == [
        *("update", "prometheus", "update", "prometheus-alertmanager")
    ]


def test_a_suite_that_cannot_be_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWARDEN_STACK_SUITE", "../sid")
    with pytest.raises(stack.StackError, match="TRAINWARDEN_STACK_SUITE: no suite is called"):
        machine.find()


def test_a_refused_download_is_one_line_with_commands_and_leaves_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.add_packages()
    monkeypatch.setenv("REFUSED", "download")
    with pytest.raises(stack.StackError) as caught:
        machine.find()
    reason, *commands = str(caught.value).splitlines()
    assert "E: no such thing" in reason
    assert "put prometheus and promtool, Prometheus 2.42 or newer, on PATH" in reason
    assert all(line.startswith(("  curl -fL https://", "  export PATH=")) for line in commands)
    assert os.listdir(machine.stack) == ["lock"]  # noqa: PTH208 - names are compared

    monkeypatch.setenv("REFUSED", "")
    assert machine.find().prometheus.exists()


def test_what_a_killed_run_left_is_cleared(machine: Machine) -> None:
    machine.add_packages()
    half = machine.stack / ".prometheus-abc" / "root"
    half.mkdir(parents=True)
    machine.find()
    assert not half.exists()


def test_a_machine_without_apt_gets_advice(machine: Machine) -> None:
    with pytest.raises(stack.StackError, match="no apt-get to fetch it with: put prometheus and"):
        machine.find()


def test_a_package_that_is_too_old_is_reported(machine: Machine) -> None:
    machine.add_packages()
    machine.add("dpkg-deb", FAKE_DPKG.replace("3.1.4", "2.31.0"))
    with pytest.raises(stack.StackError, match=r"this system's Prometheus is 2\.31, too old"):
        machine.find()


def test_the_real_programs_run(binaries: stack.Binaries) -> None:
    assert stack.version(binaries.prometheus) >= stack.PROMETHEUS.oldest
    assert stack.version(binaries.alertmanager) >= stack.ALERTMANAGER.oldest


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ({"ID": "arch"}, "pacman -S prometheus alertmanager"),
        ({"ID": "manjaro", "ID_LIKE": "arch"}, "pacman -S prometheus alertmanager"),
        ({"ID": "alpine"}, "apk add prometheus alertmanager"),
        ({"ID": "opensuse-leap", "ID_LIKE": "suse opensuse"}, stack.INSTALL["suse"]),
        ({"ID": "unheard-of", "ID_LIKE": "of too"}, "from https://prometheus.io/download/"),
        ({}, "from https://prometheus.io/download/"),
    ],
)
def test_a_system_without_apt_is_given_the_command_of_its_own(
    release: dict[str, str], command: str
) -> None:
    assert stack.how_to_install(release, "mips") == command


@pytest.mark.parametrize(("cpu", "built_for"), [("x86_64", "amd64"), ("aarch64", "arm64")])
def test_where_no_distribution_has_them_the_official_releases_are_named(
    cpu: str, built_for: str, tmp_path: Path
) -> None:
    """The versions of the containers. Fedora's Prometheus is too old."""
    text = stack.how_to_install({"ID": "fedora"}, cpu)
    images = (stack.PROJECT / "docker-compose.yml").read_text(encoding="utf-8")
    for name in ("prometheus", "alertmanager"):
        (version,) = re.findall(rf"prom/{name}:v([\d.]+)@", images)
        file = f"{name}-{version}.linux-{built_for}"
        url = f"https://github.com/prometheus/{name}/releases/download/v{version}/{file}.tar.gz"
        assert f"curl -fL {url} | tar xz" in text.splitlines()
        (tmp_path / file).mkdir()
    # curl brings nothing here: the last line alone
    script = f"{text.splitlines()[-1]}; echo $PATH"
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    first, second, *_ = map(Path, done.stdout.strip().split(":"))
    assert {first, second} == set(tmp_path.iterdir())


def test_without_a_clone_the_stack_lives_in_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRAINWARDEN_STACK_DIR", "TRAINWARDEN_FOLDER", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert stack.stack_folder() == stack.PROJECT / ".stack"
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert stack.stack_folder() == Path("/home/someone/.local/state/trainwarden/stack")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert stack.stack_folder() == Path("/state/trainwarden/stack")
    monkeypatch.setenv("TRAINWARDEN_FOLDER", "/srv/tw")
    assert stack.stack_folder() == Path("/srv/tw/stack")
    monkeypatch.setenv("TRAINWARDEN_STACK_DIR", "/srv/stack")
    assert stack.stack_folder() == Path("/srv/stack")


def test_a_missing_extra_is_named() -> None:
    with pytest.raises(stack.StackError, match=r"no nothing-like-it .*'trainwarden\[stack\]'"):
        stack.script("nothing-like-it")
