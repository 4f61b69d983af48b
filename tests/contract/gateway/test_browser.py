"""The pages at /ui in Chromium: what is drawn, by keyboard alone, in light and dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from io import BytesIO

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.unit.gateway.test_ui import a_job, a_run
from tests.worlds.gateway import TOKEN
from tests.worlds.serving import Served, served

pytestmark = pytest.mark.timeout(180)
CURVE = {"light": (0x24, 0x68, 0xB8), "dark": (0x62, 0xA3, 0xEE)}
"""Colour of the first curve in each scheme."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.fail("chromium is missing: run deploy/chromium/install.sh as root")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]  # a container has no more
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=flags)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with served() as found:
        found.do(a_run(found.world))
        found.do(a_job(found.world, "other"))
        yield found


@pytest.fixture
def page(browser: Browser, gateway: Served) -> Iterator[Page]:
    """Signed in; it asks nobody but the gateway, and complains of nothing."""
    context = browser.new_context(base_url=gateway.url)
    context.set_default_timeout(60_000)
    cookie = {"name": "ebbtide", "value": TOKEN, "url": f"{gateway.url}/ui"}
    context.add_cookies([cookie])  # type: ignore[list-item] # a TypedDict of more fields
    opened = context.new_page()
    asked: list[str] = []
    complaints: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: complaints.append(message.text))
    yield opened
    assert all(url.startswith(gateway.url) for url in asked)
    assert complaints == []
    context.close()


def shades(part: Locator) -> dict[tuple[int, int, int], int]:
    """How many pixels of a screenshot have each colour."""
    picture = Image.open(BytesIO(part.screenshot())).convert("RGB")
    counted = picture.getcolors(picture.width * picture.height)
    assert counted is not None
    return {colour: number for number, colour in counted}  # type: ignore[misc]


def test_one_signs_in_by_keyboard_alone(browser: Browser, gateway: Served) -> None:
    context = browser.new_context(base_url=gateway.url)
    page = context.new_page()
    page.goto("/ui")
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(page.get_by_role("row", name="demo")).to_contain_text("Running")
    context.close()


def test_a_job_shows_its_curves_samples_and_events(page: Page) -> None:
    page.goto("/ui/jobs/demo?live=0")
    expect(page.get_by_role("heading", level=1)).to_have_text("demo")
    expect(page.get_by_role("region", name="Samples", exact=True)).to_contain_text("hello world")
    curve = page.get_by_role("img", name="Reward by step")
    expect(curve).to_be_visible()
    assert shades(curve)[CURVE["light"]] > 50


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_follow_the_scheme_and_can_be_read_in_it(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type] # a Literal of these
    page.goto("/ui/jobs/demo?live=0")
    found = shades(page.locator("body"))
    paper = max(found, key=lambda colour: found[colour])
    assert (sum(paper) < 3 * 64) == (scheme == "dark")
    curve = page.get_by_role("img", name="Reward by step")
    assert shades(curve)[CURVE[scheme]] > 50
    ink = page.locator("h1").evaluate("e => getComputedStyle(e).color")
    assert contrast(rgb(ink), paper) >= 4.5  # WCAG 2.2, 1.4.3


def test_everything_that_scrolls_or_acts_is_reached_by_tab(page: Page) -> None:
    page.goto("/ui/jobs/demo?live=0")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(focused(page))
        if reached[-1] == "Events":
            break
    assert {"Samples", "Samples that are alike", "Events", "Show"} <= set(reached)
    outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_samples_are_told_apart_by_what_is_ticked_with_the_keyboard(page: Page) -> None:
    page.goto("/ui/jobs/demo?live=0")
    page.get_by_label("policy").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    table = page.get_by_role("region", name="Samples that are alike")
    expect(table.get_by_role("columnheader", name="policy")).to_be_visible()
    expect(table.get_by_role("row", name="v0 d0")).to_contain_text("1.000")


def test_two_jobs_are_compared(page: Page) -> None:
    page.goto("/ui")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(" and ")


def focused(page: Page) -> str:
    script = "() => (e => e.ariaLabel || e.textContent.trim())(document.activeElement)"
    found: str = page.evaluate(script)
    return found


def rgb(text: str) -> tuple[int, int, int]:
    red, green, blue = (int(part) for part in text.removeprefix("rgb(").rstrip(")").split(","))
    return red, green, blue


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """WCAG 2.2: of the relative luminances."""
    lights = sorted(luminance(colour) + 0.05 for colour in (one, other))
    return lights[1] / lights[0]


def luminance(colour: tuple[int, int, int]) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (part / 255 for part in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
