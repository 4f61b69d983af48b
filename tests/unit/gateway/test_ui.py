"""Pages for people: who may see them, and that they say what the API says."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import httpx
import pytest

from ebbtide.ports import Resource
from ebbtide.wire import Part, Value
from tests.unit.gateway.test_artifacts_api import UID, accepted, plan, put_tokenizer, scored
from tests.unit.gateway.test_figures import a_report, put
from tests.worlds.gateway import TOKEN, World, condition

EMPTY = {"meta", "link", "input", "br", "circle", "line", "polyline", "rect", "path", "polygon"}


class Outline(HTMLParser):
    """Checks that elements close, and keeps what a screen reader would read of the frame."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.regions: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert tag != "script"
        assert not any(name.startswith("on") for name in given)
        if tag in ("h1", "h2"):
            self.headings.append(tag)
        if given.get("role") == "region":
            self.regions.append(given.get("aria-label") or "")
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop() == tag


async def page(world: World, path: str, **query: str | list[str]) -> httpx.Response:
    async with world.client(token="") as browser:
        browser.cookies.set("ebbtide", TOKEN)
        return await browser.get(path, params=query)


async def a_job(world: World, name: str = "demo", *, ended: bool = False) -> Resource:
    kind = "Complete" if ended else "Running"
    return await world.put_job(name, conditions=[condition(kind)])


async def a_run(world: World | None = None) -> World:
    world = world or World()
    await a_job(world)
    await put(world, a_report(0), a_report(1, mean=0.75))
    await put_tokenizer(world)
    one = await accepted(world, 0, 0)
    value = Value(1.0, (Part("task", 1.0, 1.0),))
    await world.put_ledger(UID, [plan(0, "train"), one, scored(one, value)])
    return world


@pytest.mark.parametrize("path", ["/ui", "/ui/jobs/demo", "/ui/compare?a=demo&b=demo"])
async def test_without_a_token_a_page_asks_for_one(path: str) -> None:
    async with World().client(token="") as browser:
        answer = await browser.get(path)
    assert answer.status_code == 401
    assert 'type="password"' in answer.text
    assert "not known" not in answer.text


async def test_a_browser_signs_in_and_its_token_stays_out_of_reach() -> None:
    world = World()
    async with world.client(token="") as browser:
        answer = await browser.post("/ui/login", content=f"token={TOKEN}")
        jobs = await browser.get("/ui")
        api = await browser.get("/v1/jobs")
    assert answer.status_code == 303
    kept = answer.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "SameSite=strict" in kept
    assert "Path=/ui" in kept
    assert jobs.status_code == 200
    assert api.status_code == 401


async def test_a_wrong_token_is_told_and_a_cookie_opens_no_api() -> None:
    world = World()
    async with world.client(token="") as browser:
        browser.cookies.set("ebbtide", "ebt_wrong")
        answer = await browser.get("/ui")
        browser.cookies.set("ebbtide", TOKEN)
        api = await browser.get("/v1/jobs")
    assert 'role="alert"' in answer.text
    assert api.status_code == 401


async def test_jobs_are_listed_with_state_and_progress() -> None:
    world = World()
    await a_job(world, "one")
    await a_job(world, "two", ended=True)
    text = (await page(world, "/ui")).text
    assert '<a href="/ui/jobs/one">one</a></td><td>Running</td>' in text
    assert "<td>Complete</td>" in text
    assert 'action="/ui/compare"' in text


async def test_a_job_shows_curves_cost_samples_and_events() -> None:
    world = await a_run()
    text = (await page(world, "/ui/jobs/demo")).text
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert outline.headings.count("h1") == 1
    regions = {"Samples", "Samples that are alike", "Events", "Reward: the numbers"}
    assert regions <= set(outline.regions)
    assert "hello world" in text
    assert "0.750" in text
    assert text.count("<svg") >= 2


async def test_samples_are_told_apart_by_what_is_ticked_and_stay_so() -> None:
    text = (await page(await a_run(), "/ui/jobs/demo", by=["policy", "length"])).text
    assert (
        '<th scope="col" class="text">policy</th><th scope="col" class="text">length</th>' in text
    )
    assert '<td class="text">v0 d0</td><td class="text">1-64</td><td>1</td><td>1.000</td>' in text
    assert 'value="length" checked' in text
    assert 'value="task">' in text
    assert 'href="?live=0&amp;by=policy&amp;by=length"' in text


async def test_a_page_loads_itself_again_while_the_job_runs_unless_it_is_told_not_to() -> None:
    world = World()
    await a_job(world)
    await a_job(world, "done", ended=True)
    live = 'http-equiv="refresh"'
    assert live in (await page(world, "/ui/jobs/demo")).text
    assert live not in (await page(world, "/ui/jobs/demo", live="0")).text
    assert live not in (await page(world, "/ui/jobs/done")).text


async def test_two_jobs_are_compared_figure_by_figure() -> None:
    world = await a_run()
    await a_job(world, "other")
    text = (await page(world, "/ui/compare", a="demo", b="other")).text
    outline = Outline()
    outline.feed(text)
    assert "demo and other" in text
    assert re.search(r"<td>training reward</td><td>0\.750</td><td>-</td>", text)


async def test_what_a_model_says_is_text_and_never_markup() -> None:
    world = await a_run()
    job = {"spec": {"model": {"uri": "<script>alert(1)</script>"}}}
    await world.cluster.patch("RLHFJob", "default", "demo", job)
    answer = await page(world, "/ui/jobs/demo")
    assert "<script" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_a_job_that_is_not_there_is_a_problem() -> None:
    assert (await page(World(), "/ui/jobs/none")).status_code == 404
