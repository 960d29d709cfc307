"""Latency of the explorer in a browser, from the pointer event to the frame, with many heads.

    python -m benchmarks.looking --layers 12 --heads 12 --tokens 512 --out looking.json

A model of random weights (one step of training) reads one text. Its report and the page of a
server are opened in Chromium; words are pointed at and heads are selected, each timed from the
event to the frame after it. Needs playwright and a Chromium of this machine.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

from benchmarks.serving import started
from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.reports.run import write_run_report
from regard.lab.runs import Run

WORDS = "good film , not a bad one at all , but the plot was long and the end".split()
HOVERS, SWITCHES = 100, 60
FRAME = """const frame = () => new Promise((done) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = done;
  channel.port2.postMessage(0);
}));"""
HOVER = f"""async (n) => {{ {FRAME}
  const words = document.querySelectorAll('.tokens')[0].querySelectorAll('[data-i]');
  const taken = [];
  for (let k = 0; k < n; k++) {{
    const begun = performance.now();
    words[(37 * k) % words.length].dispatchEvent(new MouseEvent('mouseover', {{ bubbles: true }}));
    await frame();
    taken.push(performance.now() - begun);
  }}
  return taken;
}}"""
SWITCH = f"""async ([n, heads]) => {{ {FRAME}
  const buttons = document.querySelectorAll('.thumb');
  const taken = [];
  for (let k = 0; k < n; k++) {{
    performance.clearMarks('head-painted');
    const begun = performance.now();
    buttons[(29 * k) % heads].click();
    while (!performance.getEntriesByName('head-painted').length) {{
      await new Promise((done) => setTimeout(done, 1));
    }}
    await frame();
    taken.push(performance.now() - begun);
  }}
  return taken;
}}"""


@dataclass
class Times:
    """The times of one page in milliseconds."""

    load: float
    hover: float
    hover_p95: float
    switch: float
    switch_p95: float


def model(folder: Path, layers: int, heads: int, tokens: int) -> Run:
    """Return a classifier with these heads after one training step."""
    settings = [
        f"layers={layers}", f"heads={heads}", f"width={12 * heads}", f"length={tokens}",
        "feedforward=64", "examples=60", "steps=1", "batch_tokens=500", "precision=fp32",
    ]  # fmt: skip
    run = runs.open_or_start(folder, "classification", "transformer", settings)
    for _ in run.train():
        pass
    return run


def measured(page: Any, url: str, heads: int) -> Times:
    """Open a page and time it. The wait for the first picture is its load."""
    begun = time.monotonic()
    page.goto(url)
    page.wait_for_selector(".tokens", timeout=120_000)
    load = 1000 * (time.monotonic() - begun)
    page.wait_for_timeout(500)
    page.evaluate("document.querySelectorAll('.thumb')[3].click()")
    page.wait_for_timeout(1000)
    hover = sorted(page.evaluate(HOVER, HOVERS))
    switch = sorted(page.evaluate(SWITCH, [SWITCHES, heads]))

    def at(times: list[float], share: float) -> float:
        return round(times[int(share * (len(times) - 1))], 1)

    return Times(round(load), at(hover, 0.5), at(hover, 0.95), at(switch, 0.5), at(switch, 0.95))


def chromium() -> str:
    """Return the path of a Chromium of this machine. Raises: there is none."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        raise RegardError("there is no chromium on the path; Debian: apt-get install chromium")
    return path


@contextmanager
def browser() -> Iterator[Any]:
    """Open Chromium without a window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        yield opened
        opened.close()


def look(layers: int, heads: int, tokens: int, place: Path) -> dict[str, Any]:
    """Measure the report, its size, and the page. Raises: no Chromium."""
    chromium()
    text = " ".join((WORDS * (tokens // len(WORDS) + 1))[:tokens])
    run = model(place / "run", layers, heads, tokens)
    report = write_run_report(run, [text], place / "report.html")
    state = urlencode({"view": "heads", "run": "run", "text": text})
    with started(place / "run", "deadline=120") as (_, url), browser() as opened:
        # The server's page would open its tour over the view.
        seen = "try { localStorage.setItem('regard-tour', 'seen') } catch {}"
        size = {"width": 1440, "height": 900}
        file = measured(opened.new_page(viewport=size), report.as_uri(), layers * heads)
        fresh = opened.new_page(viewport=size)
        fresh.add_init_script(seen)
        page = measured(fresh, f"{url}/#{state}", layers * heads)
    about = {"layers": layers, "heads": heads, "tokens": tokens, "bytes": report.stat().st_size}
    return {**about, "report": asdict(file), "page": asdict(page)}


def main() -> None:
    """Run the command; print and write the measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with TemporaryDirectory() as place:
        found = look(asked.layers, asked.heads, asked.tokens, Path(place))
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
