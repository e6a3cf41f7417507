"""The collector as a whole: real servers on real sockets, from the configuration to the samples."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fake_engines import FakeSglang, FakeVllm
from fake_serving import FakeServer, end_all_others
from trainwarden_exporter.collectors.inference import InferenceCollector, server_signs
from trainwarden_exporter.exceptions import CollectError, NoData
from trainwarden_exporter.inference.health_model import HealthReason, HealthState, ProcessInfo
from trainwarden_exporter.inference.probe_loop import ProbeLoop
from trainwarden_exporter.inference.process_activity import ProcessActivity
from trainwarden_exporter.inference.server_discovery import ServerDiscovery
from trainwarden_exporter.inference.target import ServerHealth, ServerTarget
from trainwarden_exporter.processes.matching import WorkerKey
from trainwarden_exporter.progress.run_time_evidence import ServerSigns
from trainwarden_exporter.run_config import RunConfig
from trainwarden_exporter.scrape.collector import Family
from trainwarden_exporter.scrape.validation import validated

if TYPE_CHECKING:
    from tests.exporter.conftest import Authority, Pair

WaitUntil = Callable[[Callable[[], bool]], None]


class Stage:
    """An event loop in a thread, on which fake servers play."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.servers: list[FakeServer] = []
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(5)

    def add(self, server: FakeServer, *, listen: bool = True) -> FakeServer:
        self.servers.append(server)
        if listen:
            self.call(server.listen())
        return server

    def add_secured(self, server: FakeServer, pair: Pair) -> FakeServer:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert_file, pair.key_file)

        async def listen() -> None:
            server._server = await asyncio.start_server(
                server._handle, sock=server.socket, ssl=context
            )

        self.add(server, listen=False)
        self.call(listen())
        return server

    def close(self) -> None:
        for server in self.servers:
            self.call(server.close())
        self.call(end_all_others())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    one = Stage()
    yield one
    one.close()


@pytest.fixture
def collectors() -> Iterator[list[InferenceCollector]]:
    made: list[InferenceCollector] = []
    yield made
    for one in made:
        one.close()


def run(*servers: dict[str, Any]) -> RunConfig:
    defaults = {"interval": 1}
    return RunConfig.model_validate(
        {"name": "grpo", "inference": [{**defaults, **server} for server in servers]}
    )


def values(collector: InferenceCollector) -> dict[tuple[str, ...], float]:
    """The samples of one collection, by server, name without prefix, and further labels."""
    families: tuple[Family, ...] = validated(collector.collect(), collector.metrics)
    found = {}
    for family in families:
        for sample in family.samples:
            _, server, _, *more = sample.labels.values()
            name = sample.name.removeprefix("trainwarden_inference_")
            found[(server, name, *more)] = sample.value
    return found


def away(collector: InferenceCollector) -> dict[tuple[str, ...], float]:
    """Since when which servers are not ok, by server, worker, role and reason."""
    return {
        (server, *more): value
        for (server, name, *more), value in values(collector).items()
        if name == "not_ready_since_timestamp_seconds"
    }


def test_without_servers_there_is_nothing_to_observe() -> None:
    with pytest.raises(NoData):
        InferenceCollector([run()]).collect()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first scrape waits for the first probes, for however long they take on this machine."""
    assert ProbeLoop.latest.__kwdefaults__ is not None
    monkeypatch.setitem(ProbeLoop.latest.__kwdefaults__, "wait_seconds", 60.0)


@pytest.mark.usefixtures("patient")
def test_two_servers_from_configuration_to_samples(
    stage: Stage, collectors: list[InferenceCollector], wait_until: WaitUntil
) -> None:
    vllm = stage.add(FakeServer(FakeVllm()))
    vllm.engine.clients = 10
    sglang = stage.add(FakeServer(FakeSglang()))
    collector = InferenceCollector(
        [
            run(
                {"name": "v", "engine": "vllm", "url": vllm.url},
                {"name": "s", "engine": "sglang", "url": sglang.url},
            )
        ]
    )
    collectors.append(collector)
    found = values(collector)
    assert found["v", "up"] == found["s", "up"] == 1, "at the first scrape"
    wait_until(lambda: values(collector).get(("v", "deep_probe_success")) == 1)
    wait_until(lambda: values(collector).get(("v", "running_requests")) == 8)
    found = values(collector)
    assert found["v", "waiting_requests"] == 2
    assert found["v", "models"] == 1
    assert found["v", "weight_version"] == 0
    assert found["s", "reason", "ok"] == 1
    assert found["s", "http_status"] == 200
    assert abs(time.time() - found["s", "seen_timestamp_seconds"]) < 60


def test_a_server_that_dies_is_seen_while_the_other_goes_on(
    stage: Stage, collectors: list[InferenceCollector], wait_until: WaitUntil
) -> None:
    good, bad = stage.add(FakeServer(FakeVllm())), stage.add(FakeServer(FakeVllm()))
    collector = InferenceCollector(
        [
            run(
                {"name": "good", "engine": "vllm", "url": good.url},
                {"name": "bad", "engine": "vllm", "url": bad.url, "role": "judge"},
            )
        ]
    )
    collectors.append(collector)
    assert values(collector)["bad", "up"] == 1
    assert not away(collector)
    stage.call(bad.close())
    wait_until(lambda: values(collector)["bad", "reason", "refused"] == 1)
    found = values(collector)
    assert found["good", "up"] == 1
    since = found["bad", "state_timestamp_seconds"]
    assert away(collector) == {("bad", "", "judge", "refused"): since}


def test_a_key_in_a_file_reaches_the_server(
    stage: Stage, collectors: list[InferenceCollector], wait_until: WaitUntil, tmp_path: Path
) -> None:
    server = stage.add(FakeServer(FakeSglang()))
    server.engine.key = "secret"
    path = tmp_path / "key"
    path.write_text("secret\n")
    config = {"name": "s", "engine": "sglang", "url": server.url, "api_key_file": str(path)}
    collector = InferenceCollector([run(config)])
    collectors.append(collector)
    wait_until(lambda: values(collector).get(("s", "deep_probe_success")) == 1)
    assert values(collector)["s", "models"] == 1


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_certificate_is_checked_as_configured_however_the_url_is_written(
    stage: Stage,
    collectors: list[InferenceCollector],
    wait_until: WaitUntil,
    server_pair: Pair,
    scheme: str,
) -> None:
    server = stage.add_secured(FakeServer(FakeSglang()), server_pair)
    url = server.url.replace("http", scheme, 1)
    config = {"name": "s", "engine": "sglang", "url": url, "tls": {"insecure": True}}
    collector = InferenceCollector([run(config)])
    collectors.append(collector)
    # until no request is under way: asyncio leaves open a connection that is cancelled just before
    # its handshake
    wait_until(lambda: values(collector).get(("s", "deep_probe_success")) == 1)
    assert values(collector)["s", "up"] == 1


def test_so_is_that_of_its_metrics_where_these_alone_are_secured(
    stage: Stage,
    collectors: list[InferenceCollector],
    wait_until: WaitUntil,
    authority: Authority,
    server_pair: Pair,
) -> None:
    engine = FakeVllm()
    engine.clients = 10
    server = stage.add(FakeServer(engine))
    metrics = stage.add_secured(FakeServer(engine), server_pair)
    config = {
        "name": "v",
        "engine": "vllm",
        "url": server.url,
        "metrics_url": f"{metrics.url.replace('http', 'https', 1)}/metrics",
        "tls": {"ca_file": str(authority.cert_file)},
    }
    collector = InferenceCollector([run(config)])
    collectors.append(collector)
    wait_until(lambda: values(collector).get(("v", "running_requests")) == 8)


@pytest.mark.usefixtures("patient")
def test_a_reload_keeps_what_is_known_of_servers_that_stay(
    stage: Stage, collectors: list[InferenceCollector], wait_until: WaitUntil
) -> None:
    one, other = stage.add(FakeServer(FakeVllm())), stage.add(FakeServer(FakeVllm()))
    staying = {"name": "one", "engine": "vllm", "url": one.url}
    before = InferenceCollector([run(staying)])
    since = values(before)["one", "state_timestamp_seconds"]
    wait_until(lambda: values(before).get(("one", "probes_total"), 0) >= 2)
    after = InferenceCollector([run(staying, {"name": "two", "engine": "vllm", "url": other.url})])
    collectors.append(after)
    after.take_over_from(before)
    found = values(after)
    assert found["one", "state_timestamp_seconds"] == since
    assert found["one", "probes_total"] >= 2
    wait_until(lambda: values(after).get(("two", "up")) == 1)
    last = InferenceCollector([run()])
    collectors.append(last)
    last.take_over_from(after)
    with pytest.raises(NoData):
        last.collect()
    assert last._probes.latest() == {}


def test_probes_that_have_stopped_make_the_collector_fail(
    stage: Stage, collectors: list[InferenceCollector]
) -> None:
    server = stage.add(FakeServer(FakeVllm()))
    collector = InferenceCollector([run({"name": "v", "engine": "vllm", "url": server.url})])
    collectors.append(collector)
    values(collector)
    collector.close()
    with pytest.raises(CollectError, match="probes have stopped"):
        collector.collect()


def test_a_log_that_tells_of_an_update_excuses_a_server(
    stage: Stage, collectors: list[InferenceCollector], wait_until: WaitUntil
) -> None:
    server = stage.add(FakeServer(FakeVllm(log_stats=False)))
    reported: float | None = time.time()
    collector = InferenceCollector(
        [run({"name": "v", "engine": "vllm", "url": server.url})],
        logged_update=lambda name: reported if name == "grpo" else None,
    )
    collectors.append(collector)
    assert values(collector)["v", "reason", "updating_weights"] == 1
    assert values(collector)["v", "up"] == 1
    since = values(collector)["v", "state_timestamp_seconds"]
    assert away(collector) == {("v", "", "inference", "updating_weights"): since}
    reported = None
    wait_until(lambda: values(collector)["v", "reason", "ok"] == 1)
    assert not away(collector)


class OwnServer(ServerDiscovery):
    """Knows a process that uses no CPU."""

    def process(self, target: ServerTarget) -> ProcessInfo:
        return ProcessInfo(1000.0, age=7200.0)

    def activity(self, target: ServerTarget) -> ProcessActivity:
        return ProcessActivity(100.0)


@pytest.mark.parametrize(
    ("computing", "reason", "up"), [("generator", "busy", 1), ("trainer", "hung", 0)]
)
def test_a_silent_server_whose_worker_computes_on_a_gpu_is_busy(
    collectors: list[InferenceCollector],
    wait_until: WaitUntil,
    computing: str,
    reason: str,
    up: float,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/health"
        own = {"name": "own", "engine": "generic", "url": url, "worker": "generator"}
        runs = [
            RunConfig.model_validate(
                {
                    "name": "grpo",
                    "workers": [{"name": "generator", "match": {"command": "no such program"}}],
                    "inference": [{**own, "interval": 1, "timeout": 0.2}],
                }
            )
        ]
        collector = InferenceCollector(
            runs,
            uses_gpu=lambda key: key == WorkerKey("grpo", computing),
            discovery=OwnServer(runs),
        )
        collectors.append(collector)
        wait_until(lambda: values(collector).get(("own", "reason", reason)) == 1)
        assert values(collector)["own", "up"] == up


def health(reason: HealthReason, *, up: bool, worked_at: float | None = None) -> ServerHealth:
    return ServerHealth(HealthState(reason), up, 1000.0, 950.0, progress_timestamp=worked_at)


@pytest.mark.parametrize(
    ("servers", "signs"),
    [
        ([], ServerSigns()),
        ([health(HealthReason.OK, up=True)], ServerSigns()),
        ([health(HealthReason.OK, up=True, worked_at=850.0)], ServerSigns(working=True)),
        # before the last sign of progress, and long ago
        ([health(HealthReason.OK, up=True, worked_at=790.0)], ServerSigns()),
        ([health(HealthReason.PAUSED, up=True, worked_at=600.0)], ServerSigns()),
        ([health(HealthReason.REFUSED, up=False)], ServerSigns(down_since=950.0)),
        # a hang is found late
        (
            [health(HealthReason.HUNG, up=False, worked_at=880.0)],
            ServerSigns(down_since=880.0, working=True),
        ),
        (
            [health(HealthReason.OK, up=True), health(HealthReason.STARTING, up=False)],
            ServerSigns(down_since=950.0),
        ),
    ],
)
def test_what_servers_show_of_a_silent_run(servers: list[ServerHealth], signs: ServerSigns) -> None:
    assert server_signs(servers, 800.0, 1000.0) == signs


def test_the_signs_are_of_the_servers_of_that_run() -> None:
    server = {"name": "a", "engine": "vllm", "url": "http://127.0.0.1:1"}
    with_server = RunConfig.model_validate({"name": "demo", "inference": [server]})
    collector = InferenceCollector([with_server, RunConfig(name="other")])
    try:
        collector.collect()
        assert collector.signs("demo", None).down_since is not None
        assert collector.signs("other", None) == ServerSigns()
    finally:
        collector.close()
