"""Every page and report in a real browser: phone and screen, light and dark.

Nothing stands out of the window, text is legible against what is behind it, and all links answer.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.exporter import browser
from tests.exporter.status_page.test_page_in_a_browser import page as exporter_page
from tests.remediator.live_host import Box
from tests.remediator.samples import FINGERPRINT, LATER, ROLLOUT, TOKEN, make_alert

from stack import StackError
from trainwarden_remediator.api.server import build_app
from trainwarden_remediator.app import Remediator
from trainwarden_remediator.holds.hold_file import EVERYTHING, add_hold
from trainwarden_remediator.model import Decision, Verdict

WIDTHS = (390, 1280)
SCHEMES = {"dark": 0, "light": 1}
"""What Blink's setting `preferredColorScheme` calls them."""
CONTRAST = 4.5
"""The least contrast of text, by WCAG 2.1, level AA; of large text 3."""
SECONDS = 180
LOGIN = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/html"}
PAGES = ("/", "/report", "/report?full=1", "/report/1", "/report/2", "/hold", "/runbook/{}")
RUNBOOK = "TrainingInferenceDown"

MEASURE = """\
const pages = PAGES, found = {};
function channel(value) {
  value /= 255;
  return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
}
function luminance([r, g, b]) {
  return 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
}
function colour(text) { return text.match(/[\\d.]+/g).map(Number); }
function behind(one) {
  for (; one; one = one.parentElement) {
    const seen = colour(one.ownerDocument.defaultView.getComputedStyle(one).backgroundColor);
    if (seen.length < 4 || seen[3] > 0) return seen;
  }
  return [255, 255, 255];
}
function pale(shown) {
  const found = [], walker = shown.createTreeWalker(shown.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !one.getClientRects().length) continue;
    const style = shown.defaultView.getComputedStyle(one);
    const [a, b] = [luminance(colour(style.color)), luminance(behind(one))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
    const least = size >= 24 || (bold && size >= 18.66) ? 3 : CONTRAST;
    if (contrast < least)
      found.push(`${contrast.toFixed(2)} ${walker.currentNode.data.trim().slice(0, 60)}`);
  }
  return found;
}
async function measure() {
  for (const [name, page] of Object.entries(pages)) {
    for (const width of WIDTHS) {
      const frame = document.createElement('iframe');
      frame.style = `border: 0; height: 900px; width: ${width}px; color-scheme: light dark`;
      frame.srcdoc = page;
      const loaded = new Promise(done => { frame.onload = done; });
      document.body.append(frame);
      await loaded;
      const shown = frame.contentDocument, past = [];
      for (const one of shown.querySelectorAll('details')) one.open = true;
      const room = shown.documentElement.clientWidth;
      for (const one of shown.body.querySelectorAll('*'))
        if (one.getBoundingClientRect().right > room + 0.5) past.push(one.outerHTML.slice(0, 200));
      found[`${name} ${width}`] = {
        past, hidden: shown.documentElement.scrollWidth - room, pale: pale(shown),
        dark: luminance(behind(shown.body)) < 0.2,
      };
      frame.remove();
    }
  }
  const done = document.createElement('pre');
  done.id = 'found';
  done.textContent = JSON.stringify(found);
  document.body.append(done);
}
measure();
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    box = Box(tmp_path)
    yield box
    box.close()


async def shown_pages(box: Box) -> dict[str, str]:
    """The pages of both programs after a night with a healed and an abandoned incident.

    Each link of the remediator's pages to itself has been followed.
    """
    box.configure(exporter={"url": box.url, "config": "exporter.yml"})
    box.fire(fingerprint=LATER)
    remediator = Remediator(box.config_file)
    pages = {"exporter": exporter_page()}
    async with remediator, TestClient(TestServer(build_app(remediator))) as client:
        remediator.readiness.ready = True
        journal = remediator.journal
        alerts = [make_alert(fingerprint=each) for each in (FINGERPRINT, LATER, "2" * 16)]
        journal.record_alerts(alerts)
        first, second, proposed = journal.open_incidents()
        journal.record_decisions([(proposed, Decision(Verdict.WAIT, "observe_mode"))])
        restart = Decision(Verdict.ACT, "restart")
        for incident, outcome in ((first, "healed"), (second, "not_healed")):
            journal.record_decisions([(incident, restart)])
            number = journal.record_intent(incident.id, ROLLOUT, "restart", (), step=362.0)
            command = ["/opt/venv/bin/python", "-m", "a_module_with_a_long_name." * 12]
            journal.record_step(number, "start", command=command)
            journal.record_result(number, "done", started_by="us", processes=[4242])
            if outcome == "healed":
                journal.record_outcome(number, "healed", seconds=33.7, step=370.0)
            else:
                journal.record_outcome(number, "not_healed", seen="still too large")
        journal.record_decisions([(second, Decision(Verdict.REFUSE, "attempts_exhausted"))])
        add_hold(remediator.setup.config.hold_file, EVERYTHING, remediator.clock.now())
        for path in PAGES:
            answer = await client.get(path.format(RUNBOOK), headers=LOGIN)
            assert answer.status == 200, path
            pages[path] = text = await answer.text()
            assert path != "/hold" or "Approve once" in text
            for link in re.findall(r'href="([^"]*)"', text):
                target = answer.url.join(type(answer.url)(html.unescape(link)))
                if target.host == answer.url.host and target.port == answer.url.port:
                    followed = await client.get(target.path_qs, headers=LOGIN)
                    assert followed.status == 200, (path, link)
    return pages


def measured(pages: Mapping[str, str], folder: Path, scheme: str) -> dict[str, dict[str, Any]]:
    """What a browser finds, by page and width."""
    try:
        chromium = browser.find()
    except StackError as error:
        pytest.skip(f"no browser: {error}")
    # A page that is loaded again would leave the frame.
    still = {
        name: re.sub(r'<meta http-equiv="refresh"[^>]*>', "", text) for name, text in pages.items()
    }
    script = MEASURE.replace("PAGES", json.dumps(still).replace("</", "<\\/"))
    script = script.replace("WIDTHS", json.dumps(WIDTHS)).replace("CONTRAST", str(CONTRAST))
    harness = folder / "harness.html"
    head = '<!DOCTYPE html><meta charset="utf-8"><style>:root { color-scheme: light dark; }</style>'
    harness.write_text(f"{head}<body><script>{script}</script>", encoding="utf-8")
    options = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000"),
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
        f"--user-data-dir={folder / 'profile'}",
    )
    result = subprocess.run(
        [chromium.program, *options, "--dump-dom", harness.as_uri()],
        env=chromium.environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=True,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', result.stdout, re.DOTALL)
    assert found is not None, result.stderr[-2000:]
    measures: dict[str, dict[str, Any]] = json.loads(html.unescape(found[1]))
    return measures


def test_what_is_too_pale_or_too_wide_is_found(tmp_path: Path) -> None:
    bad = '<body><p style="color: #aaa">pale</p><p style="width: 500px; color: #000">wide</p>'
    found = measured({"bad": f"<!DOCTYPE html>{bad}"}, tmp_path, "light")
    assert found["bad 390"]["pale"] == ["2.32 pale"]
    (wide,) = found["bad 390"]["past"]
    assert "wide" in wide
    assert (found["bad 1280"]["past"], found["bad 1280"]["dark"]) == ([], False)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_every_page_fits_is_legible_and_its_links_answer(
    scheme: str, box: Box, tmp_path: Path
) -> None:
    pages = await shown_pages(box)
    found = measured(pages, tmp_path, scheme)
    assert set(found) == {f"{name} {width}" for name in pages for width in WIDTHS}
    for name, seen in found.items():
        assert seen["dark"] is (scheme == "dark"), name
        assert (seen["past"], seen["hidden"]) == ([], 0), name
        assert seen["pale"] == [], name
