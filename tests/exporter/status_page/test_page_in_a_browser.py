"""The status page in a real browser: no screen cuts anything off."""

from __future__ import annotations

import html
import json
import re
import subprocess

import pytest
from tests.exporter import browser
from tests.exporter.status_page.test_overview import NOW, STATUS, disks, family, snapshot

from stack import StackError
from trainwarden_exporter.scrape.scraper import Outcome
from trainwarden_exporter.status_page import page as status_page

WIDTHS = (320, 390, 820, 1440)
"""Pixels: a small phone, a usual one, a tablet, a screen."""
SECONDS = 120
NAME = "grpo-qwen2.5-7b-math_with-tools-2026-11-21"
WORKER = (NAME, "rollout-17-of-the-second-node", "rollout")

MEASURE = """\
const page = document.querySelector('iframe').srcdoc, found = {};
async function measure() {
  for (const width of WIDTHS) {
    const frame = document.createElement('iframe');
    frame.style = `border: 0; height: 900px; width: ${width}px`;
    frame.srcdoc = page;
    const loaded = new Promise(done => { frame.onload = done; });
    document.body.append(frame);
    await loaded;
    const shown = frame.contentDocument, past = [];
    const room = shown.documentElement.clientWidth;  // without the bar to scroll with
    for (const one of shown.body.querySelectorAll('*'))
      if (one.getBoundingClientRect().right > room + 0.5) past.push(one.outerHTML.slice(0, 200));
    const cell = shown.querySelector('td[data-label=Worker]');
    found[width] = {
      past, hidden: shown.documentElement.scrollWidth - room,
      head: shown.querySelectorAll('h2').length,
      stacked: shown.defaultView.getComputedStyle(cell).display !== 'table-cell',
    };
    frame.remove();
  }
  const done = document.createElement('pre');
  done.id = 'found';
  done.textContent = JSON.stringify(found);
  document.body.append(done);
}
measure();
"""


def page() -> str:
    """A page with something in each of its sections."""
    workers = Outcome(
        "workers",
        0.1,
        (
            family("worker_expected_processes", {WORKER: 1}),
            family("worker_processes", {WORKER: 1}),
            family("worker_memory_bytes", {WORKER: 7.5e9}),
            family("worker_memory_limit_bytes", {WORKER: 8e9}),
        ),
    )
    gpus = Outcome(
        "gpu",
        0.1,
        (
            family("gpu_driver_state", {("ok",): 1}),
            family("gpu_up", {("0", "GPU-a"): 1}),
            family("gpu_memory_used_bytes", {("0", "GPU-a"): 6e10}),
            family("gpu_memory_total_bytes", {("0", "GPU-a"): 8e10}),
        ),
    )
    run = Outcome(
        "progress",
        0.1,
        (
            family("training_finished", {(NAME,): 0}),
            family("training_phase", {(NAME, "waiting_for_rollouts"): 1}),
            family("training_step", {(NAME,): 123_456}),
            family("training_total_steps", {(NAME,): 1_234_567}),
            family("checkpoint_seen_timestamp_seconds", {(NAME, "default"): NOW}),
            family("checkpoint_step", {(NAME, "default"): 123_400}),
            family("checkpoint_timestamp_seconds", {(NAME, "default"): NOW - 7400}),
            family("inference_up", {(NAME, "sglang-0", "sglang"): 0}),
            family("inference_reason", {(NAME, "sglang-0", "sglang", "no_answer"): 1}),
        ),
    )
    disk = disks(up=1, size_bytes=4e12, free_bytes=1e12, free_floor_bytes=2e10)
    failed = Outcome("logs", 9.5, error=OSError(13, "Permission denied", "/data/logs/trainer.log"))
    return status_page.render(snapshot(workers, gpus, run, disk, failed, remediator=STATUS))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What a browser finds on the page, by the width of its window."""
    try:
        chromium = browser.find()
    except StackError as error:
        pytest.skip(f"no browser: {error}")
    folder = tmp_path_factory.mktemp("browser")
    harness = folder / "harness.html"
    # Only this page around it runs a script; the page itself has none.
    script = MEASURE.replace("WIDTHS", json.dumps(WIDTHS))
    framed = f'<iframe hidden srcdoc="{html.escape(page())}"></iframe>'
    harness.write_text(f"<!DOCTYPE html><body>{framed}<script>{script}</script>", encoding="utf-8")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000")
    result = subprocess.run(
        [chromium.program, *options, f"--user-data-dir={folder}", "--dump-dom", harness.as_uri()],
        env=chromium.environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', result.stdout, re.DOTALL)
    assert found is not None, result.stderr[-2000:]
    measures: dict[str, dict[str, object]] = json.loads(html.unescape(found[1]))
    return measures


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_stands_out_of_the_window(
    width: int, measured: dict[str, dict[str, object]]
) -> None:
    found = measured[str(width)]
    assert found["past"] == []
    assert found["hidden"] == 0
    assert found["head"] == 9


def test_tables_are_stacked_on_a_phone_alone(measured: dict[str, dict[str, object]]) -> None:
    stacked = {int(width): found["stacked"] for width, found in measured.items()}
    assert stacked == {320: True, 390: True, 820: False, 1440: False}
