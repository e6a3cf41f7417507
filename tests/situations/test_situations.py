"""The whole story of docs/run.md in each situation of its table, from an empty environment.

Installed from the index, started, watched, restarted, verified, reported; and quiet after the end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.situations.shells import Host, Shell, behind, notebook, ssh, tmux, within
from tests.waiting import until

import stack
from running import build_wheel, fetch, read_journal
from running_runs import environment_of
from trainwarden.run.process_tree import read_start_ticks, send_signal

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="needs Linux and root, to be all accounts"
)

ACCOUNT = 61236
"""The uid of an account without any right."""
AS_ACCOUNT = (
    *("setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups"),
    *("--bounding-set=-all", "sh", "-c"),
)
NO_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "sh")
NAMESPACES = ("unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child")
OLD_KERNEL = str(Path(__file__).parent / "old_kernel")
ASKED = (
    "from trainwarden_exporter.processes.exit_status import exit_statuses_available as available;"
    "raise SystemExit(available())"
)

TRAIN = """\
leak=$(test -d checkpoints || echo --leak)
exec python train.py $leak --step-seconds=0.5 --steps=360 --save-every=60 --out=checkpoints
"""
"""Its first start exceeds the limit after 36 steps; what it is after a restart does not leak.

It saves each half minute: for ten seconds or longer after each save, no restart is due."""
QUIET_SECONDS = 30.0


@dataclass(frozen=True)
class Situation:
    shell: Shell
    proof: str
    """A command that succeeds in it, and in few others."""
    account: int = 0


SITUATIONS = {
    "pipes": Situation(behind("sh", "-c"), "! test -t 0 && ! test -t 1"),
    "a terminal": Situation(
        behind("script", "--quiet", "--return", "/dev/null", "--command"), "test -t 1"
    ),
    "a session of its own": Situation(
        behind("setsid", "--wait", "sh", "-c"), "test $(ps -o sid= $$) -eq $$"
    ),
    "nohup": Situation(
        behind("nohup", "sh", "-c"), "grep -Eq '^SigIgn:.*[13579bdf]$' /proc/self/status"
    ),
    "tmux": Situation(tmux, 'test -t 1 && test -n "$TMUX"'),
    "ssh without a terminal": Situation(ssh, '! test -t 1 && test -n "$SSH_CONNECTION"'),
    "a notebook": Situation(notebook, 'test -t 1 && test -n "$JPY_PARENT_PID"'),
    "an ordinary account": Situation(behind(*AS_ACCOUNT), f"test $(id -u) -eq {ACCOUNT}", ACCOUNT),
    "a container without capabilities": Situation(
        within(*NAMESPACES, *NO_CAPABILITIES),
        "test $$ -lt 9 && grep -q '^CapEff:\t0*$' /proc/self/status",
    ),
    "an old kernel": Situation(behind("sh", "-c", PYTHONPATH=OLD_KERNEL), f'python -c "{ASKED}"'),
}


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder that every account can enter."""
    with tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="session")
def programs(place: Path) -> Path:
    """The folder of the commands of an environment that was empty before."""
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin") or sys.executable
    make = subprocess.run([python, "-m", "venv", place / "env"], capture_output=True, check=False)
    if make.returncode:
        pytest.skip(f"{python} makes no virtual environment")
    wheel = build_wheel(place)
    install = [str(place / "env/bin/pip"), "install", "--quiet", f"{wheel}[stack]"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    subprocess.run(install, env=clean, check=True)
    return place / "env" / "bin"


@pytest.fixture(params=SITUATIONS)
def situation(request: pytest.FixtureRequest) -> Situation:
    return SITUATIONS[request.param]


@pytest.fixture
def host(programs: Path, place: Path, situation: Situation) -> Iterator[Host]:
    folder = Path(tempfile.mkdtemp(dir=place))
    (example,) = programs.parent.glob("lib/*/site-packages/**/examples/plain/train.py")
    shutil.copy(example, folder)
    (folder / "train.sh").write_text(TRAIN)
    stack.find_binaries(place / "servers")
    # What the stack fetches is for its own account alone; here all situations share it.
    subprocess.run(["chmod", "-R", "a+rX", place / "servers"], check=True)
    below = folder / ".local/state/trainwarden/stack"
    below.mkdir(parents=True)
    for found in (place / "servers").glob("prometheus*/"):  # fetched once for all situations
        (below / found.name).symlink_to(found)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, situation.account, situation.account, follow_symlinks=False)
    search = f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    yield Host(folder, {"HOME": str(folder), "PATH": search, "LC_ALL": "C.UTF-8"})
    marker = f"HOME={folder}".encode()
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    left = [(pid, read_start_ticks(pid)) for pid in pids if marker in environment_of(pid)]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        send_signal(left, number)


def test_a_leak_is_restarted_verified_and_reported_and_the_end_is_quiet(
    host: Host, situation: Situation
) -> None:
    with situation.shell(host) as typed:

        def run(command: str) -> str:
            status, output = typed(command)
            assert status == 0, f"{command}\n{output}"
            return output

        run(situation.proof)
        started = run("trainwarden up --no-demo --mode act --detach --any-free")
        trained = run(
            "trainwarden run --memory-limit 300MiB --checkpoints checkpoints -- sh train.sh"
        )
        config = host.folder / ".local/state/trainwarden/stack/run-announced/remediator.yml"
        events = [event for event in read_journal(config) if event["run"] == "train"]
        story = "\n".join(str(event) for event in events)
        assert re.search(r"resumed from step \d+0\b", trained), story
        assert "training finished" in trained
        kinds = [event["kind"] for event in events]
        for kind in ("alert", "intent", "stop", "start", "result"):
            assert kind in kinds
        outcomes = [event["facts"]["outcome"] for event in events if event["kind"] == "outcome"]
        assert outcomes == ["healed"]
        report = run("trainwarden report")
        assert "train/trainer" in report
        assert "healed" in report

        address = re.search(r"^  Prometheus +(http://[^/\s]+)/", started, re.MULTILINE)
        assert address is not None

        def results(expression: str) -> list[object]:
            asked = urllib.parse.urlencode({"query": expression})
            answer = json.loads(fetch(f"{address[1]}/api/v1/query?{asked}")[1])
            return list(answer["data"]["result"])

        until(lambda: results('trainwarden_worker_finished{run="train"} == 1'))
        until(lambda: not results('ALERTS{run="train"}'))  # pending ones too
        quiet_until = time.time() + QUIET_SECONDS
        while time.time() < quiet_until:
            assert results('ALERTS{run="train"}') == []
            time.sleep(1)
        # 2 where the remediator does not answer within two seconds, as on a loaded machine
        until(lambda: typed("trainwarden status")[0] == 0)
        run("trainwarden down")
