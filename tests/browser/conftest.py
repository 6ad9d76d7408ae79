"""A real Chromium. It is started once for each file: playwright keeps an event loop that other tests must not meet."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here; on Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a file as a person would, from disk; a page that complained or asked for anything else fails its test."""
    complaints: list[str] = []
    contexts = []

    def opened(path: Path, script: str = "", **options) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        if script:
            context.add_init_script(script)
        context.set_default_timeout(120_000)  # milliseconds; machines that test are busy
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        address = path.resolve().as_uri()
        page.on("request", lambda request: request.url == address or complaints.append(f"request: {request.url}"))
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def look(visit: Callable[..., Page]) -> Callable[..., Page]:
    """As `visit`, and waits until all plots are drawn."""

    def drawn(path: Path, **options) -> Page:
        page = visit(path, **options)
        page.wait_for_selector("html[data-plots=drawn]")
        return page

    return drawn
