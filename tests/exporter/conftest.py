"""What tests of the exporter share: certificates, a /proc made of files, programs that run."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pynvml  # type: ignore[import-untyped]
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from simulated_gpu import SimulatedBox, State, build, gpu, load
from trainwarden_exporter.runtime.background_poller import BackgroundPoller

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
ENDS_SECONDS = 0.2


@pytest.fixture(autouse=True)
def own_pollers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the pollers that a test leaves: later tests would see their files, calls and lines."""
    made: list[BackgroundPoller[object]] = []
    make = BackgroundPoller.__init__

    def recorded(poller: BackgroundPoller[object], *args: object, **settings: object) -> None:
        made.append(poller)
        make(poller, *args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(BackgroundPoller, "__init__", recorded)
    yield
    for poller in made:
        poller.close()
        if poller._thread is not None:
            poller._thread.join(ENDS_SECONDS)  # some tests have a poll that hangs


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM text and as files."""

    cert: str
    key: str
    cert_file: Path
    key_file: Path

    @property
    def serial(self) -> int:
        return x509.load_pem_x509_certificate(self.cert.encode()).serial_number


class Authority:
    """A certificate authority that writes what it issues into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(self.name, self.key.public_key(), (), ca=True, end=NOW + DAY)
        self.cert = certificate.public_bytes(serialization.Encoding.PEM).decode()
        self.cert_file = folder / f"{name}.pem"
        self.cert_file.write_text(self.cert)

    def issue(self, name: str, *sans: x509.GeneralName, end: dt.datetime = NOW + DAY) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key.public_key(), sans, ca=False, end=end)
        pair = Pair(
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
            self.folder / f"{name}.crt",
            self.folder / f"{name}.key",
        )
        pair.cert_file.write_text(pair.cert)
        pair.key_file.write_text(pair.key)
        return pair

    def issue_server(self, name: str, *, end: dt.datetime = NOW + DAY) -> Pair:
        loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return self.issue(name, x509.DNSName("localhost"), loopback, end=end)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        sans: tuple[x509.GeneralName, ...],
        *,
        ca: bool,
        end: dt.datetime,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - 10 * DAY)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if sans:
            builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
        return builder.sign(self.key, hashes.SHA256())


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="session")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="session")
def server_pair(authority: Authority) -> Pair:
    return authority.issue_server("server")


@pytest.fixture
async def secured(server_pair: Pair) -> AsyncIterator[str]:
    """The URL of a server with a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_pair.cert_file, server_pair.key_file)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.close()

    running = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    yield f"https://127.0.0.1:{running.sockets[0].getsockname()[1]}"
    running.close()
    await running.wait_closed()


@pytest.fixture(scope="session")
def renewed_pair(authority: Authority) -> Pair:
    return authority.issue_server("renewed")


@pytest.fixture(scope="session")
def expired_pair(authority: Authority) -> Pair:
    return authority.issue_server("expired", end=NOW - DAY)


@pytest.fixture(scope="session")
def client_pair(authority: Authority) -> Pair:
    return authority.issue(
        "client",
        x509.DNSName("prometheus.example"),
        x509.IPAddress(ipaddress.ip_address("::1")),
        x509.RFC822Name("ops@example.org"),
        x509.UniformResourceIdentifier("spiffe://example.org/prometheus"),
    )


class FakeProc:
    """A /proc made of plain files. Processes in it start `start` ticks after boot."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()

    def add(
        self,
        pid: int,
        command: Sequence[str] = (),
        *,
        parent: int = 1,
        start: int = 100,
        state: str = "S",
        name: str = "python",
        ticks: int = 0,
        mark: int = 1,
        pages: int = 5,
        flags: int = 0,
        threads: int = 1,
        status: int = 0,
        environment: Mapping[str, str] | None = None,
        cgroup: str | None = None,
        executable: str | None = None,
        cwd: str | Path | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """A process; `ticks` is its CPU time, `mark` changes when it executes another program."""
        numbers = [0] * 49  # the fields after the state, from the fourth on
        numbers[0], numbers[5], numbers[10], numbers[16] = parent, flags, ticks, threads
        numbers[18], numbers[20], numbers[44], numbers[48] = start, pages, mark, status
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = " ".join(str(number) for number in numbers)
        (folder / "stat").write_text(f"{pid} ({name}) {state} {fields}\n")
        (folder / "cmdline").write_text("".join(f"{part}\0" for part in command))
        if environment is not None:
            pairs = (f"{key}={value}\0" for key, value in environment.items())
            (folder / "environ").write_text("".join(pairs))
        if cgroup is not None:
            (folder / "cgroup").write_text(cgroup)
        if executable is not None:
            (folder / "exe").symlink_to(executable)
        if cwd is not None:
            (folder / "cwd").symlink_to(cwd)
        for file, text in (files or {}).items():
            (folder / file).write_text(text)

    def open(self, pid: int, *paths: Path | str, folder: str = "fd") -> None:
        """Let the process have these files open, and no others."""
        descriptors = self.root / str(pid) / folder
        shutil.rmtree(descriptors, ignore_errors=True)
        descriptors.mkdir(parents=True)
        for number, path in enumerate(paths):
            (descriptors / str(number)).symlink_to(path)

    def remove(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated library of the GPU driver."""
    return build(tmp_path_factory.mktemp("simulated-nvml"))


@pytest.fixture
def gpu_box(nvml_library: Path, tmp_path: Path) -> SimulatedBox:
    """A simulated box of two GPUs, for programs that are started with its environment."""
    return SimulatedBox(tmp_path / "box", [gpu(0), gpu(1)], library=nvml_library)


@pytest.fixture
def own_gpu_box(
    nvml_library: Path, gpu_box: SimulatedBox, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SimulatedBox]:
    """The simulated host, for this very process."""
    load(nvml_library)
    monkeypatch.setenv("SIMULATED_GPU_STATE", str(gpu_box.state_file))
    yield gpu_box
    gpu_box.write(State())  # whatever still hangs goes on
    try:
        while True:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        pass


Start = Callable[..., "subprocess.Popen[str]"]
Mount = Callable[..., None]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python programs, and ends the remaining ones when the test is over.

    A program prints a line when it is ready; `start` returns after that.
    """
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-S", "-c", code, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(program)
        assert program.stdout is not None
        assert program.stdout.readline(), "the program ended before it was ready"
        return program

    yield start
    for program in started:
        program.kill()
        program.communicate()


@pytest.fixture
def as_nobody() -> Callable[[], AbstractContextManager[None]]:
    """A context in which this process has the rights of an unprivileged user."""
    if os.geteuid() != 0:
        pytest.skip("only root can take the rights of another user")

    @contextmanager
    def unprivileged() -> Iterator[None]:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return unprivileged


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mounts at a folder, with arguments as the command takes them, until the test is over."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    mounted: list[Path] = []

    def mount(point: Path, *arguments: str) -> None:
        point.mkdir(exist_ok=True)
        command = ["mount", *arguments, str(point)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            pytest.skip(f"mounts are not allowed here: {result.stderr.strip()}")
        if point not in mounted:
            mounted.append(point)

    yield mount
    for point in reversed(mounted):
        subprocess.run(["umount", str(point)], check=True)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Waits for the kernel to do what it was asked."""

    def wait_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.005)

    return wait_until
