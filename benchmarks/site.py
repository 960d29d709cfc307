"""Check pages of the built documentation site: light and dark, wide and narrow.

    make docs && python -m benchmarks.site docs/_build/html/0.1.0 --out pictures

Each page is opened from its file in Chromium and must fit the width, have no serious fault by axe
and send no request to another host. Prints one JSON object; ``--out`` stores each view. Exit
code 1 if a check fails. Needs playwright, axe-playwright-python and a Chromium of this machine.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

PAGES = (
    "index", "get-started", "daily", "how-to", "texts", "explorer", "reference/commands",
    "results/site", "results/labs", "zh/index", "tutorials/own-texts", "tutorials/new-score",
    "tutorials/reading-attention",
)  # fmt: skip
WIDTHS = (1280, 390)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description="Look at pages of the site.")
    parser.add_argument("site", type=Path, help="the folder that make docs wrote")
    parser.add_argument("--pages", default=",".join(PAGES))
    parser.add_argument("--out", type=Path, help="folder for pictures")
    asked = parser.parse_args(arguments)
    views, problems, elsewhere = 0, [], set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox"],
        )
        for scheme in ("light", "dark"):
            page = browser.new_context(color_scheme=scheme).new_page()
            page.on(
                "request",
                lambda request: (
                    None
                    if request.url.startswith(("file:", "data:"))
                    else elsewhere.add(request.url)
                ),
            )
            for name in asked.pages.split(","):
                page.goto((asked.site / f"{name}.html").resolve().as_uri())
                for width in WIDTHS:
                    page.set_viewport_size({"width": width, "height": 900})
                    page.wait_for_timeout(200)
                    views += 1
                    view = f"{name}, {scheme}, {width}"
                    wide = page.evaluate("document.documentElement.scrollWidth")
                    if wide > width:
                        problems.append(f"{view}: {wide} pixels wide")
                    for fault in Axe().run(page).response["violations"]:
                        if fault["impact"] in ("serious", "critical"):
                            first = fault["nodes"][0]["html"][:120]
                            problems.append(f"{view}: {fault['id']}: {first}")
                    if asked.out:
                        asked.out.mkdir(parents=True, exist_ok=True)
                        picture = f"{name.replace('/', '-')}-{scheme}-{width}.png"
                        page.screenshot(path=asked.out / picture)
        browser.close()
    report = {"views": views, "problems": problems, "requests": sorted(elsewhere)}
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 1 if problems or elsewhere else 0


if __name__ == "__main__":
    sys.exit(main())
