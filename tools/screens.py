"""Take the screenshots of the documentation: `python -m tools.screens`; it needs Chromium.

The page of the report is made from `docs/live/report.json.gz`, the explorer is served on a free port of this machine.
"""

import shutil
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright
from tools.gallery import DOCS, LIVE, kept

from skiplens.explorer.serve import explorer

IMAGES, SIZE, PATIENCE = DOCS / "images", {"width": 1000, "height": 720}, 120_000


def report(page: Page, folder: Path) -> None:
    page.goto(kept(LIVE).save(folder / "report.html").as_uri())
    page.wait_for_selector("html[data-plots=drawn]")
    page.screenshot(path=IMAGES / "report.png")


def theory(page: Page, folder: Path) -> None:
    served = explorer(folder, port=0)
    thread = threading.Thread(target=served.serve, daemon=True)
    thread.start()
    page.goto(f"{served.link}paths?depth=100&beta=0.5")
    page.wait_for_selector("#hero .plot .main-svg")
    page.screenshot(path=IMAGES / "explorer.png")
    served.close()
    thread.join()


def main() -> None:
    """Take both."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)
        page.set_default_timeout(PATIENCE)
        report(page, Path(folder))
        theory(page, Path(folder))
        browser.close()


if __name__ == "__main__":
    main()
