"""The explorer in a real browser: a server of this process, and pages that may ask nobody else."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Error, Page, expect

if TYPE_CHECKING:
    from skiplens.explorer.serve import Explorer

Visit = Callable[..., Page]
PATIENCE = 300  # seconds; machines that test are busy, and nothing is asserted on how long it took
SAYS = "document.documentElement.dataset"
expect.set_options(timeout=1000 * PATIENCE)


@contextmanager
def served(folder: Path | None = None, host: str = "127.0.0.1") -> Iterator["Explorer"]:
    """The explorer on a free port, answering."""
    from skiplens.explorer.serve import explorer  # not before the hook that checks shapes

    page = explorer(folder, host, port=0)
    thread = threading.Thread(target=page.serve, daemon=True)
    thread.start()
    yield page
    page.close()
    thread.join()


@contextmanager
def visits(browser: Browser, server: "Explorer") -> Iterator[Visit]:
    """Opens addresses of the server; a page that complained, or asked anybody but the server, fails its test."""
    complaints: list[str] = []
    contexts: dict[str, BrowserContext] = {}
    home = urlsplit(server.link).netloc

    def check(address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("data", "blob") and parts.netloc != home:
            complaints.append(f"request: {address}")

    def opened(address: str = "/", **options) -> Page:
        if repr(options) not in contexts:
            made = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
            made.set_default_timeout(1000 * PATIENCE)
            contexts[repr(options)] = made
        page = contexts[repr(options)].new_page()
        page.on("console", lambda message: message.type == "error" and complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error} {error.stack}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: check(request.url))
        page.goto(f"http://{home}{address}")
        return page

    yield opened
    for context in contexts.values():
        context.close()
    assert not complaints, complaints


def settled(page: Page) -> Page:
    """The page when all its fields are there, its pictures are drawn for what they say and nothing is measured."""
    drawn = "document.querySelector('#hero .plot .main-svg') && !document.querySelector('#progress progress')"
    wait(page, f"{SAYS}.settled === 'yes' && {SAYS}.plots === 'drawn' && {drawn}")
    return page


def wait(page: Page, condition: str) -> None:
    """Wait until a condition in JavaScript is true; asked from here, since the page may not evaluate text itself."""
    end = time.monotonic() + PATIENCE
    while not _holds(page, condition):
        assert time.monotonic() < end, f"in vain: {condition}"
        page.wait_for_timeout(50)


def _holds(page: Page, condition: str) -> bool:
    try:
        return page.evaluate(f"() => Boolean({condition})")
    except Error as error:
        if "context was destroyed" in str(error):  # it is on its way to another page
            return False
        raise


def pull(page: Page, name: str, right: float, up: float) -> None:
    """Take a dot of the network by its middle, so many pixels to the right and up."""
    wait(page, "document.querySelector('#network svg')")
    handle = page.locator(f"#network .{name}.handle")
    looks = iter(range(200))
    while (box := handle.bounding_box()) is None:  # an answer that comes just now draws it anew
        assert next(looks, None) is not None, "it is never seen"
        page.wait_for_timeout(50)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + right, y - up, steps=3)
    page.mouse.up()


def missing_for_a_screen_reader(page: Page) -> list[str]:
    """What axe would find: parts without a name, places of the keyboard inside of pictures, names that stand twice."""
    pressed = "button, a[href], summary, iframe, nav, form, [role=region], [role=group], [role=radiogroup], [role=img]"
    name = "e.getAttribute('aria-label') || e.getAttribute('title') || e.textContent"
    shown = "all => all.filter(e => e.checkVisibility()"
    nameless = f"{shown} && !({name}).trim()).map(e => e.outerHTML.slice(0, 80))"
    unlabelled = f"{shown} && !e.labels?.length && !e.ariaLabel).map(e => e.outerHTML.slice(0, 80))"
    inside = "all => all.map(e => `inside of a picture: ${e.outerHTML.slice(0, 60)}`)"
    ids = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
    return [
        *page.locator(pressed).evaluate_all(nameless),
        *page.locator("input, select, textarea").evaluate_all(unlabelled),
        *page.locator("[role=img] :is(button, a, input, [tabindex='0'])").evaluate_all(inside),
        *(name for name in set(ids) if ids.count(name) > 1),
    ]


def curve(page: Page, name: str = "energy of all paths of this length") -> list[float]:
    """The heights of a curve of the main picture, as they are drawn; pictures come after their words, so it waits."""
    end = time.monotonic() + PATIENCE
    heights = f"() => {{ const curve = {_curve(name)}; return curve ? [...curve.y] : null; }}"
    while (found := page.evaluate(heights)) is None:
        assert time.monotonic() < end, f"in vain: {name}"
        page.wait_for_timeout(50)
    return found


def wait_for_points(page: Page, count: int, name: str = "energy of all paths of this length") -> None:
    """Wait until a curve of the main picture has so many points."""
    wait(page, f"{_curve(name)}?.y.length === {count}")


def _curve(name: str) -> str:
    return f"document.querySelector('#hero .plot')?.data?.find(trace => (trace.name || '') === {json.dumps(name)})"
