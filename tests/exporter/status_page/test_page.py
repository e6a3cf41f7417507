"""The page is readable at a glance, whatever is in it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from trainwarden_exporter.app import declared_metrics
from trainwarden_exporter.exceptions import CollectError, Problem
from trainwarden_exporter.scrape.collector import Family
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page import page as status_page
from trainwarden_exporter.status_page.page import PageData
from trainwarden_exporter.webserver.html import STYLE_SOURCE

METRICS = {metric.name: metric for metric in declared_metrics()}
VOID = {"meta", "link", "br", "rect"}
EVIL = "<script>alert('x')</script>&\"$title"


class Page(HTMLParser):
    """The words of a page; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert all(not name.startswith("on") and name != "style" for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words = " ".join(f"{self.words} {data}".split())


def family(name: str, *samples: tuple[tuple[str, ...], float]) -> Family:
    made = METRICS[f"trainwarden_{name}"].family()
    for labels, value in samples:
        made.add_metric(labels, value)
    return made


def host(available: float = 60 << 30) -> Outcome:
    return Outcome(
        "host",
        0.002,
        (
            family("memory_effective_total_bytes", ((), 128 << 30)),
            family("memory_effective_available_bytes", ((), available)),
            family("memory_available_floor_bytes", ((), 8 << 30)),
            family("host_load_average", (("1m",), 1.5)),
            family("host_cpus", ((), 64)),
            family("memory_oom_kills_total", (("host",), 2)),
            family("host_boot_timestamp_seconds", ((), 0)),
            family("memory_swap_total_bytes", ((), 8 << 30)),
            family("memory_swap_free_bytes", ((), 8 << 30)),
        ),
    )


def workers(*names: str, run: str = "demo", processes: float = 1) -> Outcome:
    keys = [(run, name, "rollout") for name in names]
    return Outcome(
        "workers",
        0.02,
        (
            family("worker_expected_processes", *((key, 1) for key in keys)),
            family("worker_processes", *((key, processes) for key in keys)),
            family("worker_memory_bytes", *((key, 4 << 30) for key in keys)),
            family("worker_memory_limit_bytes", *((key, 8 << 30) for key in keys)),
            family("worker_start_timestamp_seconds", *((key, 988_480) for key in keys)),
            family("worker_cpu_seconds_total", *((key, 61) for key in keys)),
            family("worker_restarts_total", *((key, 3) for key in keys)),
        ),
    )


def page(
    *outcomes: Outcome,
    path: Path | None = Path("/etc/exporter.yml"),
    problems: tuple[Problem, ...] = (),
    web_config_loaded: bool | None = None,
) -> Page:
    return Page(
        status_page.render(
            PageData(
                now=1_000_000,
                started=999_000,
                path=path,
                reloaded=999_000,
                outcomes=outcomes,
                problems=problems,
                web_config_loaded=web_config_loaded,
            )
        )
    )


def test_it_shows_workers_host_collectors_and_configuration() -> None:
    words = page(host(), workers("rollout-0", "rollout-1")).words

    assert "No problem is seen: 2 workers are up. Alerts are not known." in words
    assert "Run demo" in words
    assert "rollout-0 rollout up 4.0 GiB of 8.0 GiB 1 / 1 3 h 12 min 1 min 1 s 3" in words
    assert "60.0 GiB of memory available of 128 GiB, floor 8.0 GiB" in words
    assert "Load 1.50 on 64 CPUs Swap used 0 B of 8.0 GiB OOM kills since boot 2 Up for" in words
    assert "host ok 2 ms" in words
    assert "/etc/exporter.yml , in force since 1970-01-12 13:30:00 UTC." in words
    assert "up 16 min 40 s" in words


def test_what_is_wrong_is_reported_first() -> None:
    wrong = Problem(Path("/etc/exporter.yml"), 3, "runs", "expected a list")
    words = page(
        host(available=1 << 30),
        workers("rollout-0", "rollout-1", processes=0),
        Outcome("gpu", 42.0, error=CollectError("no answer within 9.5 s")),
        problems=(wrong,),
        web_config_loaded=False,
    ).words

    you = "Who acts You, now No remediator is configured."
    assert f"demo/rollout-0 is not running. And 5 more, below. {you}" in words
    assert (
        "Other problems demo/rollout-1 is not running You, now "
        "memory of the host is below its floor (1.0 GiB available, floor 8.0 GiB) You, now "
        "collectors failed: gpu You, now the configuration file is not in force You, now "
        "the web configuration file is not in force You, now"
    ) in words
    assert "gpu failed 42 s no answer within 9.5 s" in words
    assert "/etc/exporter.yml:3: runs: expected a list" in words
    assert "The web configuration file is broken." in words


def test_a_worker_to_watch_is_no_trouble_yet() -> None:
    outcome = workers("rollout-0")
    old = family("worker_age_limit_seconds", (("demo", "rollout-0", "rollout"), 60))
    words = page(host(), Outcome("workers", 0.1, (*outcome.families, old))).words
    assert "rollout-0 is old (3 h 12 min of 1 min). Who acts You, now No remediator" in words
    assert "3 h 12 min of 1 min" in words


def test_an_empty_page_is_explained() -> None:
    words = page(path=None, web_config_loaded=True).words
    assert "No problem is seen: no run is known. Alerts are not known." in words
    assert "No workers are configured; only the host is observed." in words
    assert "Memory is unknown." in words
    assert "Defaults , in force since" in words or "Defaults, in force since" in words
    assert "The web configuration file is in force." in words


def test_workers_that_cannot_be_seen_are_not_taken_for_none() -> None:
    words = page(host(), Outcome("workers", 9.5, error=OSError("no /proc"))).words
    assert "Unknown: the collector workers failed." in words
    assert "OSError: no /proc" in words


def test_whatever_comes_from_outside_is_escaped() -> None:
    text = page(
        host(),
        workers(EVIL, run=EVIL),
        Outcome(EVIL, 1, error=OSError(EVIL)),
        path=Path(EVIL),
        problems=(Problem(Path(EVIL), 1, EVIL, EVIL),),
    )
    assert "script" not in text.tags
    assert text.words.count("alert('x')") >= 7


def test_it_needs_nothing_but_itself() -> None:
    text = status_page.render(PageData(0, 0, None, 0, (host(), workers("a"))))
    assert not re.search(
        r"(src=|url\(|@import|https?:|<script|<link(?! rel=\"icon\" href=\"data:))", text
    )
    assert re.findall(r'<a href="([^"]*)"', text) == ["metrics"]


def test_the_style_source_is_the_digest_of_its_style() -> None:
    text = status_page.render(PageData(0, 0, None, 0, ()))
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" == STYLE_SOURCE


@pytest.mark.parametrize("available", [0, 1, 128 << 30, 200 << 30])
def test_a_bar_stays_within_its_track(available: float) -> None:
    text = status_page.render(PageData(0, 0, None, 0, (host(available),)))
    (filled,) = re.findall(r'class="fill \w+" width="([\d.-]+)"', text)
    assert 0 <= float(filled) <= 100


def test_it_is_loaded_again_unless_it_is_to_be_read_and_shows_its_tone_as_an_icon() -> None:
    data = PageData(0, 0, None, 0, (host(), workers("a")), refresh=True)
    text = status_page.render(data)
    assert '<meta http-equiv="refresh" content="15">' in text
    assert '<a href="?refresh=0">' in text
    assert "23804d" in text.partition("<title>")[0]  # green
    still = status_page.render(replace(data, refresh=False, links={"remediator": "http://a/"}))
    assert 'http-equiv="refresh"' not in still
    assert '<a href="http://a/">remediator</a>' in still
