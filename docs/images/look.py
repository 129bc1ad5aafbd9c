"""The picture of `milepost look --demo` in the README: the head that finds the last bit written.

    make pictures

It is what Chromium shows of the page, of which it needs one. The demo's models are trained if they
are not there.
"""

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from milepost import cli

FOLDER = Path(__file__).parent
PAGE = Path("runs/look/look.html")
VIEW = "#subject=0&layer=1&head=0"
SIZE = {"width": 1180, "height": 700}


def main() -> None:
    """Write look.png beside this file."""
    if cli.main(["look", "--demo", "--out", str(PAGE)]):
        return
    with sync_playwright() as playwright:
        found = shutil.which("chromium") or playwright.chromium.executable_path
        browser = playwright.chromium.launch(executable_path=found)
        page = browser.new_page(viewport=SIZE, device_scale_factor=1.5, color_scheme="light")
        page.goto(PAGE.resolve().as_uri() + VIEW)
        page.wait_for_selector("html[data-ready]")
        page.screenshot(path=FOLDER / "look.png")
        browser.close()


if __name__ == "__main__":
    main()
