"""One Chromium and one explorer for all tests of this folder.

They end with the folder and not with the session: playwright keeps an event loop that other tests must not meet.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.explorer_page import PATIENCE, Visit, served, visits

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
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
        context.set_default_timeout(1000 * PATIENCE)
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


def unfold(page: Page) -> None:
    """Open all that cards keep folded."""
    page.evaluate("document.querySelectorAll('.why, .more').forEach(details => { details.open = true; })")


def read_on(page: Page) -> None:
    """Come near every plot that is not folded, as one who reads on does: they are drawn then."""
    come_near = """all => { const plot = all.find(plot => plot.checkVisibility() && !plot.firstChild);
        plot?.scrollIntoView(); return Boolean(plot); }"""
    while page.locator(".plot").evaluate_all(come_near):
        page.wait_for_timeout(50)
    page.evaluate("scrollTo(0, 0)")


@pytest.fixture
def look(visit: Callable[..., Page]) -> Callable[..., Page]:
    """As `visit`, and reads on until all plots are drawn; those of cards are unfolded if wanted."""

    def drawn(path: Path, unfolded: bool = False, **options) -> Page:
        page = visit(path, **options)
        page.wait_for_selector("html[data-plots=drawn]")
        if unfolded:
            unfold(page)
        read_on(page)
        return page

    return drawn


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A report with bad names."""
    from tests.browser.report_page import made  # not before the hook that checks shapes

    return made().save(tmp_path / "a report #1.html")


@pytest.fixture
def whole_path(tmp_path: Path) -> Path:
    """The same with the readings of all lenses."""
    from tests.browser.report_page import made

    return made(whole=True).save(tmp_path / "whole.html")


@pytest.fixture(scope="package")
def runs(tmp_path_factory) -> Iterator[Path]:
    """A folder of runs, with a hostile name in it and a secret beside it."""
    from skiplens.papers.study import MODULES
    from tests.explorer.run_folders import HOSTILE, report, write_comparison, write_gallery, write_report, write_study

    folder = tmp_path_factory.mktemp("explorer")
    MODULES["small"] = "tests.papers.small_study"
    torch.set_default_dtype(torch.float64)  # this comes before the fixture that does so for every test
    (folder / "secret.txt").write_text("secret")
    write_report(folder / "runs" / "first", report("First"))
    write_report(folder / "runs" / "second", report("Second", energy=(1.0, 0.0, 0.0, 0.0, 1.0)))
    write_report(folder / "runs" / HOSTILE, report(HOSTILE))
    write_study(folder / "runs" / "study")
    write_gallery(folder / "runs" / "gallery")
    write_comparison(folder / "runs" / "pair")
    torch.set_default_dtype(torch.float32)
    yield folder / "runs"
    del MODULES["small"]


@pytest.fixture(scope="package")
def all_visits(browser: Browser, runs: Path) -> Iterator[Visit]:
    with served(runs) as server, visits(browser, server) as opened:
        yield opened


@pytest.fixture
def explore(all_visits: Visit) -> Iterator[Visit]:
    """Opens a page of the explorer; all share a cache, as those of a person do. Complaints are told at the end."""
    pages = []

    def opened(*arguments, **options) -> Page:
        pages.append(all_visits(*arguments, **options))
        return pages[-1]

    yield opened
    for page in pages:
        page.close()
