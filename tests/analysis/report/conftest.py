"""A browser for the page: Debian's Chromium, driven by Playwright, without a network."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")  # no longer: while it drives, this thread has a running event loop
def chromium() -> Iterator[Any]:
    """A running Chromium; tests that need it are skipped where there is none (``CHROME`` names another)."""
    program = os.environ.get("CHROME") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no Chromium here: install it (apt-get install chromium), or name it in CHROME")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        alone = ["--no-sandbox"] if os.geteuid() == 0 else []  # as root Chromium refuses to start with it
        browser = driver.chromium.launch(executable_path=program, args=alone)
        yield browser
        browser.close()
