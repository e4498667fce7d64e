"""The page, in a real browser against the real service: what a person does, and what they see."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

import monogram as mg

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def log():
    return mg.sample()


@pytest.fixture(scope="module")
def service(start, log, tmp_path_factory):
    """Two models of one log."""
    folder = tmp_path_factory.mktemp("page")
    mg.DEQL(l2=50, dropout=0.3, b=0.5).fit(log).save(folder / "deql.mono")
    mg.ItemKNN().fit(log).save(folder / "neighbours.mono")
    return start(folder / "deql.mono", folder / "neighbours.mono")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser, service):
    """A page; what it logs as an error, or asks of another host, is a failure."""
    contexts, wrong = [], []

    def make(hash_="", size=WIDE, scheme="light"):
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(service.url) else wrong.append(asked.url))
        page.goto(f"{service.url}/#{quote(json.dumps(hash_))}" if hash_ else f"{service.url}/")
        page.wrong = wrong
        return page

    yield make
    for context in contexts:
        context.close()
    assert wrong == []


def items(log, number):
    return list(log.items)[:number]


def listed(page, name="deql"):
    return page.get_by_label(f"Recommendations of {name}").locator("ol > li .name").first


def test_search_click_and_reasons(open_page, log):
    page = open_page()
    expect(page.get_by_text("Nothing used yet")).to_be_visible()
    first = items(log, 1)[0]
    page.get_by_label("Search the catalogue").fill(str(first)[:8])
    page.locator("#options").get_by_role("option").first.click()
    expect(page.locator("#history li")).to_have_count(1)
    expect(page.locator(".list ol > li")).to_have_count(10)
    expect(page.locator(".list ol > li").first.locator(".reasons li").first).to_contain_text("%")
    page.get_by_role("button", name=re.compile("^Add ")).first.click()
    expect(page.locator("#history li")).to_have_count(2)
    expect(page.locator(".list ol > li").first.locator(".reasons li")).to_have_count(2)


def test_the_reasons_are_the_exact_shares(open_page, log, service):
    history = items(log, 2)
    page = open_page({"history": history})
    expect(page.locator(".list ol > li")).to_have_count(10)
    (found,) = service.post("/v1/recommend", {"histories": [history], "k": 1, "explain": 2}).json()["results"]
    best = found["items"][0]
    shown = page.locator(".list ol > li").first
    expect(shown.locator("> div > .name")).to_have_text(str(best["item"]))
    for at, share in enumerate(best["because"]):
        part = share["share"] / best["score"]
        digits = 1 if abs(part) < 0.0995 else 0
        sign = "−" if part < 0 else ""
        expect(shown.locator(".reasons .share").nth(at)).to_have_text(f"{sign}{abs(part) * 100:.{digits}f}%")
        width = (
            shown.locator(".bar i")
            .nth(at)
            .evaluate("one => one.getBoundingClientRect().width / one.parentElement.getBoundingClientRect().width")
        )
        assert width == pytest.approx(min(1, abs(part)), abs=0.02)


def test_by_keyboard_alone(open_page):
    page = open_page()
    field = page.get_by_label("Search the catalogue")
    field.focus()
    expect(page.locator("#options").get_by_role("option").first).to_be_visible()
    field.press("ArrowDown")
    expect(page.locator("#options").get_by_role("option").first).to_have_attribute("aria-selected", "true")
    assert field.get_attribute("aria-activedescendant") == "option-0"
    field.press("Enter")
    expect(page.locator("#history li")).to_have_count(1)
    field.press("Escape")
    expect(page.locator("#options")).to_be_hidden()
    remove = page.get_by_role("button", name=re.compile("^Remove "))
    remove.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#history li")).to_have_count(0)
    expect(page.get_by_text("Nothing used yet")).to_be_visible()


def test_the_slider_ranks_anew(open_page, log, service):
    history = items(log, 3)
    page = open_page({"history": history, "model": "deql"})
    expect(page.locator(".list ol > li")).to_have_count(10)
    page.get_by_role("slider").evaluate("one => { one.value = 2; one.dispatchEvent(new Event('input')); }")
    asked = {"model": "deql", "histories": [history], "parameters": {"b": 2.0}}
    expected = [one["item"] for one in service.post("/v1/recommend", asked).json()["results"][0]["items"]]
    expect(page.locator(".list ol > li > div:nth-child(2) > .name")).to_have_text([str(one) for one in expected])
    assert '"deql":2' in page.evaluate("decodeURIComponent(location.hash)")


def test_two_models_side_by_side(open_page, log):
    page = open_page({"history": items(log, 2)})
    page.get_by_label("Beside it").select_option("neighbours")
    expect(page.locator("section.list")).to_have_count(2)
    left, right = (one.bounding_box() for one in page.locator("section.list").all())
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    expect(page.locator(".both").first).to_have_text(re.compile(r"no\. \d+ beside|only here"))


def test_a_known_user_and_an_unknown_one(open_page, log):
    page = open_page()
    page.get_by_role("button", name="A known user").click()
    expect(page.get_by_text("No user yet")).to_be_visible()
    user = next(iter(log.users))
    page.get_by_label("The user’s id").fill(str(user))
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".list ol > li")).to_have_count(10)
    expect(page.locator("#history li")).to_have_count(len(log.history(user)))
    page.get_by_label("The user’s id").fill("<b>nobody</b>")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("nobody with the id “<b>nobody</b>”")).to_be_visible()


def test_unknown_items_and_a_broken_address(open_page, log):
    page = open_page({"history": [*items(log, 1), "no such thing"]})
    expect(page.get_by_text("left out: no such thing")).to_be_visible()
    page = open_page()
    page.goto(page.url.split("#")[0] + "#%7Bbroken")
    page.reload()
    expect(page.get_by_text("Nothing used yet")).to_be_visible()


def test_similar_items_in_a_dialog(open_page, log):
    page = open_page({"history": items(log, 2)})
    page.get_by_role("button", name=re.compile("^Items similar to")).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("ol > li")).to_have_count(10)
    dialog.get_by_role("button", name=re.compile("^Add ")).first.click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#history li")).to_have_count(3)


def test_the_card(open_page, log):
    page = open_page({"history": items(log, 1)})
    page.get_by_text("About this model").click()
    card = page.locator("dl")
    for text in ("l2", "dropout", f"{log.n_items:,}", "Residual", "Memory of the weights"):
        expect(card).to_contain_text(text)


def test_an_error_is_told_and_can_be_tried_again(open_page, log):
    page = open_page({"history": items(log, 1)})
    expect(page.locator(".list ol > li")).to_have_count(10)
    page.route("**/v1/recommend", lambda route: route.abort())
    page.get_by_role("button", name=re.compile("^Add ")).first.click()
    expect(page.get_by_role("alert").filter(has_text="does not answer")).to_be_visible()
    page.unroute("**/v1/recommend")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".list ol > li")).to_have_count(10)
    page.wrong[:] = [said for said in page.wrong if "ERR_FAILED" not in said]  # the browser's own words for it


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_at_the_width_of_a_phone(open_page, log, scheme):
    page = open_page({"history": items(log, 3)}, size=PHONE, scheme=scheme)
    expect(page.locator(".list ol > li")).to_have_count(10)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = sum(map(int, re.findall(r"\d+", ground)[:3])) < 200
    assert dark == (scheme == "dark")
    page.get_by_role("button", name=re.compile("^Colours")).click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_in_the_way_of_anyone(open_page, log, scheme):
    """axe-core, where MONOGRAM_AXE names its script (npm pack axe-core)."""
    script = os.environ.get("MONOGRAM_AXE", "")
    if not Path(script).is_file():
        pytest.skip("MONOGRAM_AXE does not name the script of axe-core")
    page = open_page({"history": items(log, 3), "other": "neighbours"}, scheme=scheme)
    expect(page.locator(".list")).to_have_count(2)
    page.get_by_text("About this model").first.click()
    page.evaluate(Path(script).read_text(encoding="utf-8"))
    found = page.evaluate(
        "axe.run().then(all => all.violations.map(one => [one.id, one.nodes.map(node => node.html)]))"
    )
    assert found == []
