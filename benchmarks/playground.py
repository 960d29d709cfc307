"""Seconds of the playground: the first picture, each task until solved, ten pairs of seeds.

    python -m benchmarks.playground

The page is one file in headless Chromium with the network off. Medians of --repeats; an interval
trains 20 networks. Needs playwright and a Chromium of this machine.
"""

import argparse
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.looking import browser
from regard.lab.reports.page import learn_page

#: Task, controls of the solved network, and the control and value that make it B.
CASES: tuple[tuple[str, dict[str, str], tuple[str, str]], ...] = (
    ("regression", {}, ("Score", "epanechnikov")),
    ("retrieve", {}, ("Mask", "causal")),
    ("sort", {}, ("Score", "additive")),
    ("reverse", {"Network": "attention"}, ("Position", "none")),
    ("reverse", {"Network": "recurrent"}, ("Score", "dot")),
    ("ladder", {"Network": "+ positions"}, ("Network", "+ residual")),
    ("ladder", {"Network": "CLS", "Heads": "4"}, ("Heads", "1")),
)
LIMIT = 300_000  # milliseconds


def first_picture(opened: Any, path: Path, task: str) -> tuple[Any, float]:
    """Open the page without a network; return it and the seconds to the first picture."""
    page = opened.new_page()
    page.context.set_offline(True)
    begin = time.perf_counter()
    page.goto(f"{path.as_uri()}#view=learn&lesson=train&train.task={task}")
    page.wait_for_selector(".train-map")
    return page, time.perf_counter() - begin


def choose(page: Any, controls: dict[str, str]) -> None:
    """Set controls by their labels."""
    for label, value in controls.items():
        page.select_option(f"[aria-label={label}]", value)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="repeats of opening and solving")
    parser.add_argument("--no-pairs", action="store_true", help="leave out the ten seeds")
    options = parser.parse_args()
    with TemporaryDirectory() as folder, browser() as opened:
        path = Path(folder) / "playground.html"
        path.write_text(learn_page(), encoding="utf-8")
        print(f"{path.stat().st_size:,} bytes\n")
        print("| task | first picture, s | solved, s | B | ten seeds, s | verdict |")
        print("|---|--:|--:|---|--:|---|")
        for task, controls, (label, value) in CASES:
            pictures, solved = [], []
            for _ in range(options.repeats):
                page, seconds = first_picture(opened, path, task)
                pictures.append(seconds)
                choose(page, controls)
                begin = time.perf_counter()
                page.click("button:text-is('Train')")
                page.get_by_text("Solved after").wait_for(timeout=LIMIT)
                solved.append(time.perf_counter() - begin)
                page.close()
            name = ", ".join([task, *controls.values()])
            row = f"| {name} | {statistics.median(pictures):.2f} | {statistics.median(solved):.1f}"
            if options.no_pairs:
                print(f"{row} | | | |", flush=True)
                continue
            page, _ = first_picture(opened, path, task)
            choose(page, controls)
            page.click("text=Keep these settings as A")
            choose(page, {label: value})
            begin = time.perf_counter()
            page.click("text=Compare A and B over ten seeds")
            page.get_by_text("10 of 10 seeds").wait_for(timeout=LIMIT)
            seconds = time.perf_counter() - begin
            words = page.get_by_text("10 of 10 seeds").inner_text().partition(": ")[2]
            print(f"{row} | {label.lower()} {value} | {seconds:.1f} | {words} |", flush=True)
            page.close()


if __name__ == "__main__":
    main()
