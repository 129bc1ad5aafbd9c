"""A headless Chromium that reads a page of ours, and tolerates no request and no error."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Error, Page, sync_playwright

INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def launched() -> Iterator[Browser]:
    """Chromium. Where none starts the test is skipped, but in CI it fails."""
    with sync_playwright() as playwright:
        found = [*filter(None, map(shutil.which, INSTALLED)), playwright.chromium.executable_path]
        reason = "there is none"
        for executable in filter(os.path.exists, found):
            try:
                browser = playwright.chromium.launch(executable_path=executable)
            except Error as error:
                reason = f"{executable} does not start: {error}"
                continue
            yield browser
            browser.close()
            return
        message = f"no Chromium, {reason}: `make browser` installs one"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)


@contextmanager
def opened(browser: Browser, path: Path, fragment: str = "", **context: Any) -> Iterator[Page]:
    """The page of a file, once it is drawn, in a window of its own."""
    with browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **context}) as window:
        page = window.new_page()
        said: list[str] = []
        asked: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("html[data-ready]")
        yield page
        assert said == []
        assert [url for url in asked if not url.startswith((path.as_uri(), "data:"))] == []


def drawn(page: Page) -> None:
    """Wait until what was asked for is on the screen."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
