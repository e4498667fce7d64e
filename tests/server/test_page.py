"""The page, in a real browser against the real service: what a person does, and what they see."""

from __future__ import annotations

import contextlib
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
AXE = next((one for one in [Path(os.environ.get("MONOGRAM_AXE", ""))] if one.is_file()), None)
KEY = "a-key-of-more-than-16"
FAR = 2**53 + 5  # integers from here on are not all numbers to a browser


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
def locked(start, service, tmp_path_factory):
    """The same first model, behind a key."""
    folder = tmp_path_factory.mktemp("locked")
    mg.DEQL(l2=50, dropout=0.3, b=0.5).fit(mg.sample()).save(folder / "deql.mono")
    return start(folder / "deql.mono", env={"MONOGRAM_KEY": KEY})


@pytest.fixture(scope="module")
def far(start, tmp_path_factory):
    """Ids of users and items that are integers beyond those a browser's numbers hold."""
    pairs = [(FAR + user, FAR + item) for user in range(30) for item in range(15) if (user * item + user) % 4]
    path = tmp_path_factory.mktemp("far") / "far.mono"
    mg.DEQL(l2=5, dropout=0.3, b=0.5).fit(pairs).save(path)
    return start(path)


@pytest.fixture(scope="module")
def graph(start, log, tmp_path_factory):
    """A model whose reasons are differences."""
    pytest.importorskip("torch", reason="the extra torch is not installed")
    path = tmp_path_factory.mktemp("graph") / "graph.mono"
    mg.LightGCN(rank=8, layers=1, epochs=1, batch=20_000, learning_rate=0.05).fit(log, threads=1).save(path)
    return start(path)


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

    def make(hash_="", size=WIDE, scheme="light", of=service):
        context = browser.new_context(viewport=size, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith(of.url) else wrong.append(asked.url))
        page.goto(f"{of.url}/#{quote(json.dumps(hash_))}" if hash_ else f"{of.url}/")
        page.wrong = wrong
        return page

    yield make
    for context in contexts:
        context.close()
    assert wrong == []


def items(log, number):
    return list(log.items)[:number]


def forgive(page, words):
    """The browser's own words for a request that a test made fail."""
    page.wrong[:] = [said for said in page.wrong if words not in said]


def nothing_in_the_way(page):
    """axe-core, where MONOGRAM_AXE names its script (npm pack axe-core); what else a test looks at goes on without."""
    if AXE is None:
        return
    page.evaluate(AXE.read_text(encoding="utf-8"))
    run = "axe.run().then(all => all.violations.map(one => [one.id, one.nodes.map(node => node.html)]))"
    assert page.evaluate(run) == []


def add(page, at=0):
    return page.get_by_role("button", name=re.compile("^Add ")).nth(at)


def test_search_click_and_reasons(open_page, log):
    page = open_page()
    expect(page.get_by_text("The history is empty")).to_be_visible()
    first = items(log, 1)[0]
    page.get_by_label("Search the catalogue").fill(str(first)[:8])
    page.locator("#options").get_by_role("option").first.click()
    expect(page.locator("#history li")).to_have_count(1)
    expect(page.locator(".list ol > li")).to_have_count(10)
    expect(page.locator(".list ol > li").first.locator(".reasons li").first).to_contain_text("%")
    page.get_by_role("button", name=re.compile("^Add ")).first.click()
    expect(page.locator("#history li")).to_have_count(2)
    expect(page.locator(".list ol > li").first.locator(".reasons li")).to_have_count(2)


def test_differences_are_not_called_shares(open_page, log, graph):
    words = "Differences, not shares: how much the score falls without the one item"
    page = open_page({"history": items(log, 3)}, of=graph)
    first = page.locator(".list ol > li").first
    expect(first.locator(".reasons li").first).to_contain_text("%")
    expect(first.get_by_text(words)).to_be_visible()
    expect(first.get_by_text("all other items")).to_have_count(0)
    nothing_in_the_way(page)
    shares = open_page({"history": items(log, 3)})
    expect(shares.locator(".list ol > li").first.locator(".reasons li").first).to_contain_text("%")
    expect(shares.get_by_text(words)).to_have_count(0)


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
    expect(page.get_by_text("The history is empty")).to_be_visible()
    expect(field).to_be_focused()


def test_the_focus_stays_where_one_works(open_page):
    page = open_page()
    page.locator("#lists .chips button").nth(2).focus()
    page.keyboard.press("Enter")
    expect(add(page)).to_be_focused()
    add(page, 3).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".list ol > li").first.locator(".reasons li")).to_have_count(2)
    expect(add(page, 3)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#history li")).to_have_count(3)
    remove = page.get_by_role("button", name=re.compile("^Remove "))
    remove.nth(1).focus()
    with page.expect_response("**/v1/recommend"):
        page.keyboard.press("Enter")
    expect(page.locator("#lists.busy")).to_have_count(0)
    expect(page.locator("#history li")).to_have_count(2)
    expect(remove.nth(1)).to_be_focused()
    page.get_by_role("button", name=re.compile("^Items similar")).nth(2).focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("ol > li")).to_have_count(10)
    dialog.get_by_role("button", name=re.compile("^Items similar")).nth(1).focus()
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("heading")).to_be_focused()
    dialog.get_by_role("button", name=re.compile("^Add ")).first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#history li")).to_have_count(3)
    expect(page.get_by_role("button", name=re.compile("^Items similar")).nth(2)).to_be_focused()


def test_the_skip_link_keeps_what_was_used(open_page, log):
    page = open_page({"history": items(log, 2)})
    expect(page.locator(".list ol > li")).to_have_count(10)
    page.get_by_text("Skip to the recommendations").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#lists")).to_be_focused()
    expect(page.locator("#history li")).to_have_count(2)
    assert "history" in page.url


def test_a_search_does_not_wait_for_the_models(open_page):
    page, held = open_page(), []
    page.route("**/v1/models", lambda route: held.append(route))
    page.reload()
    page.get_by_label("Search the catalogue").fill("the")
    expect(page.locator("#options").get_by_role("option")).to_have_count(12)
    held[0].continue_()
    expect(page.get_by_text("The history is empty")).to_be_visible()


def test_the_search_says_how_much_it_leaves_out(open_page, log):
    page = open_page(size={"width": 1280, "height": 700})
    page.get_by_label("Search the catalogue").focus()
    note = page.locator("#options .note")
    expect(note).to_have_text(f"12 of {log.n_items}: keep typing to see others")
    whole, part = page.locator("#options").bounding_box(), note.bounding_box()
    assert part["y"] + part["height"] <= whole["y"] + whole["height"] <= 700
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    last = page.locator("#options").get_by_role("option").last
    expect(last).to_have_attribute("aria-selected", "true")
    expect(note).not_to_have_attribute("aria-selected", re.compile("."))
    assert last.bounding_box()["y"] + last.bounding_box()["height"] <= note.bounding_box()["y"] + 1
    nothing_in_the_way(page)


def test_nothing_to_set_before_there_is_a_list(open_page, log):
    page = open_page()
    expect(page.get_by_text("The history is empty")).to_be_visible()
    expect(page.get_by_role("slider")).to_have_count(0)
    expect(page.locator("#history-title")).to_be_hidden()
    page.locator("#lists .chips button").first.click()
    expect(page.get_by_role("slider")).to_have_count(2)
    expect(page.locator("#history-title")).to_be_visible()


def test_the_slider_ranks_anew(open_page, log, service):
    history = items(log, 3)
    page = open_page({"history": history, "model": "deql"})
    expect(page.locator(".list ol > li")).to_have_count(10)
    page.get_by_label("b: weight of").evaluate("one => { one.value = 2; one.dispatchEvent(new Event('input')); }")
    asked = {"model": "deql", "histories": [history], "parameters": {"b": 2.0}}
    expected = [one["item"] for one in service.post("/v1/recommend", asked).json()["results"][0]["items"]]
    expect(page.locator(".list ol > li > div:nth-child(2) > .name")).to_have_text([str(one) for one in expected])
    assert '"deql":2' in page.evaluate("decodeURIComponent(location.hash)")


def open_with_knobs(page, service, history, name, **card):
    """The page of a model as if it were another; the parameters that it is asked with."""
    found = service.client.get(f"/v1/models/{name}").json() | card
    page.route(f"**/v1/models/{name}", lambda route: route.fulfill(json=found))
    asked = []

    def answer(route):
        body = route.request.post_data_json
        asked.append(body.pop("parameters", None))
        route.fulfill(json=service.post("/v1/recommend", body).json())

    page.route("**/v1/recommend", answer)
    page.goto("about:blank")
    page.goto(f"{service.url}/#{quote(json.dumps({'history': history, 'model': name}))}")
    return asked


def press(page, slider, key):
    slider.focus()
    with page.expect_response("**/v1/recommend"):
        page.keyboard.press(key)


@pytest.mark.parametrize(("own", "first"), [(None, "0"), (0, "0"), (0.33, "0.33")])
def test_the_slider_is_there_for_every_kind_that_has_it(open_page, log, service, own, first):
    page = open_page()
    asked = open_with_knobs(page, service, items(log, 2), "neighbours", kind="EASE", live={"b": own})
    slider = page.get_by_role("slider")
    expect(slider).to_have_value(first)
    expect(page.locator(".list ol > li")).to_have_count(10)
    press(page, slider, "End")
    expect(page.locator("output")).to_have_text("2.00")
    assert asked[0] is None
    assert asked[-1] == {"b": 2}


def test_a_power_of_popularity_has_a_slider_of_its_own(open_page, log, service):
    """Tempered has two knobs; each is in the question and in the address, and both may be moved."""
    page, live = open_page(), {"item_power": -0.2, "b": 0.0}
    asked = open_with_knobs(page, service, items(log, 2), "deql", kind="Tempered", live=live)
    expect(page.get_by_role("slider")).to_have_count(2)
    power = page.get_by_label("item_power: above 0")
    expect(power).to_have_value("-0.2")
    expect(page.locator(".list ol > li")).to_have_count(10)
    press(page, power, "Home")
    assert asked[0] is None
    assert asked[-1] == {"item_power": -1}
    press(page, page.get_by_label("b: weight of"), "End")
    assert asked[-1] == {"item_power": -1, "b": 2}
    assert '"item_power":{"deql":-1}' in page.evaluate("decodeURIComponent(location.hash)")


def test_recency_has_a_slider_and_the_history_shows_the_weights(open_page, log, service):
    """The clicks are in order, the oldest first; a moved slider weights them by their age."""
    history = items(log, 3)
    page = open_page({"history": history, "model": "deql"})
    expect(page.locator("#history li .name")).to_have_text([str(item) for item in history])
    expect(page.get_by_text("The oldest first.")).to_be_visible()
    expect(page.locator("#history .weight")).to_have_count(0)
    press(page, page.get_by_label("recency: above 0"), "End")
    asked = {"model": "deql", "histories": [history], "parameters": {"recency": 2.0}, "with_history": True}
    (found,) = service.post("/v1/recommend", asked).json()["results"]
    assert [seen["item"] for seen in found["seen"]] == history
    expect(page.locator("#history .weight")).to_have_text(["×0.11", "×0.25", "×1"])
    shown = [str(one["item"]) for one in found["items"]]
    expect(page.locator(".list ol > li > div:nth-child(2) > .name")).to_have_text(shown)
    assert '"recency":{"deql":2}' in page.evaluate("decodeURIComponent(location.hash)")
    page.get_by_role("button", name=re.compile("^Remove ")).first.click()
    expect(page.locator("#history .weight")).to_have_text(["×0.25", "×1"])


@pytest.mark.parametrize(
    ("half_life", "unit", "moment"), [("30d", None, "2000-01-01"), ("30", "s", "2000-01-01"), ("30", None, 0)]
)
def test_clicks_of_a_model_that_measures_ages_in_time_are_of_one_moment(
    open_page, log, service, half_life, unit, moment
):
    page, asked = open_page(), []
    found = service.client.get("/v1/models/deql").json()
    found["parameters"] |= {"half_life": half_life}
    found["time_unit"] = unit
    page.route("**/v1/models/deql", lambda route: route.fulfill(json=found))
    page.on("request", lambda made: asked.append(made.post_data_json) if made.url.endswith("recommend") else None)
    question = {"model": "deql", "histories": [items(log, 2)], "explain": 100, "with_history": True}
    answer = service.post("/v1/recommend", question).json()  # the log has dates, which the changed model has not
    page.route("**/v1/recommend", lambda route: route.fulfill(json=answer))
    page.goto("about:blank")
    page.goto(f"{service.url}/#{quote(json.dumps({'history': items(log, 2), 'model': 'deql'}))}")
    expect(page.locator(".list ol > li")).to_have_count(10)
    assert asked[-1]["histories"] == [[{"item": item, "time": moment} for item in items(log, 2)]]


def test_a_known_user_has_the_weights_of_the_log(open_page, log, service):
    user = max(log.users, key=lambda one: len(log.history(one)))
    page = open_page({"mode": "user", "user": str(user), "model": "deql", "recency": {"deql": 1}})
    history = [str(item) for item in log.history(user)]
    expect(page.locator("#history li .name")).to_have_text(history)
    expect(page.locator("#history .weight")).to_have_count(len(history))
    expect(page.locator("#history .weight").last).to_have_text("×1")


@pytest.mark.parametrize("width", [1280, 1200, 1024])
def test_two_models_side_by_side(open_page, log, width):
    page = open_page({"history": items(log, 2)}, size={"width": width, "height": 900})
    page.get_by_label("Compare with").select_option("neighbours")
    expect(page.locator("section.list")).to_have_count(2)
    left, right = (one.bounding_box() for one in page.locator("section.list").all())
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    expect(page.locator(".both").first).to_have_text(re.compile(r"no\. \d+ in the other list|not in the other list"))


def test_a_known_user_and_an_unknown_one(open_page, log):
    page = open_page()
    page.get_by_role("button", name="A known user").click()
    expect(page.get_by_text("No user chosen")).to_be_visible()
    user = next(iter(log.users))
    page.get_by_label("User id", exact=True).fill(str(user))
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".list ol > li")).to_have_count(10)
    expect(page.locator("#history li")).to_have_count(len(log.history(user)))
    page.get_by_label("User id", exact=True).fill("<b>nobody</b>")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("no user with the id “<b>nobody</b>”")).to_be_visible()
    expect(page.locator("#history li")).to_have_count(0)


def test_unknown_items_and_a_broken_address(open_page, log):
    page = open_page({"history": [*items(log, 1), "no such thing"], "model": "neighbours", "b": {"neighbours": 1}})
    expect(page.get_by_text("left out: no such thing")).to_be_visible()
    page = open_page()
    page.goto(page.url.split("#")[0] + "#%7Bbroken")
    page.reload()
    expect(page.get_by_text("The history is empty")).to_be_visible()


def test_an_address_that_changes_before_the_models_are_known(open_page, log):
    page = open_page()
    held = []
    page.route("**/v1/models", lambda route: held.append(route))
    page.reload(wait_until="commit")
    page.wait_for_timeout(300)
    page.evaluate("hash => { location.hash = hash; }", quote(json.dumps({"history": items(log, 2)})))
    page.wait_for_timeout(100)
    held[0].continue_()
    expect(page.locator("#history li")).to_have_count(2)


def test_similar_items_in_a_dialog(open_page, log):
    page = open_page({"history": items(log, 2)})
    page.get_by_role("button", name=re.compile("^Items similar to")).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("ol > li")).to_have_count(10)
    dialog.get_by_role("button", name=re.compile("^Add ")).first.click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#history li")).to_have_count(3)


def test_only_the_newest_question_is_drawn(open_page, log):
    page = open_page({"history": items(log, 2)})
    slow = []
    page.route("**/v1/similar", lambda route: route.continue_() if slow else slow.append(route))
    buttons = page.get_by_role("button", name=re.compile("^Items similar to"))
    buttons.nth(0).click()
    page.keyboard.press("Escape")
    buttons.nth(1).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("ol > li")).to_have_count(10)
    before = dialog.inner_text()
    with contextlib.suppress(playwright.Error):  # the page has hung up
        slow[0].fulfill(json={"results": [{"items": []}]})
    page.wait_for_timeout(200)
    assert dialog.inner_text() == before


def test_integers_that_are_no_numbers_to_a_browser(open_page, far):
    page = open_page(of=far)
    page.get_by_label("Search the catalogue").fill(str(FAR + 6))
    page.locator("#options").get_by_role("option", name=str(FAR + 6)).click()
    expect(page.locator("#history li .name")).to_have_text([str(FAR + 6)])
    asked = {"histories": [[FAR + 6]], "k": 10}
    expected = [str(one["item"]) for one in far.post("/v1/recommend", asked).json()["results"][0]["items"]]
    shown = page.locator(".list ol > li > div:nth-child(2) > .name")
    expect(shown).to_have_text(expected)
    expect(page.locator(".reasons .name").first).to_have_text(str(FAR + 6))
    expect(page.locator(".notice")).to_have_count(0)
    page.get_by_role("button", name=f"Items similar to {expected[0]}").click()
    alike = far.post("/v1/similar", {"items": [int(expected[0])]}).json()["results"][0]["items"]
    expect(page.get_by_role("dialog").locator("ol > li > div:nth-child(2) > .name")).to_have_text(
        [str(one["item"]) for one in alike]
    )
    page.keyboard.press("Escape")
    add(page).click()
    expect(page.locator("#history li .name")).to_have_text([str(FAR + 6), expected[0]])
    expect(page.locator(".notice")).to_have_count(0)
    page.reload()
    expect(page.locator("#history li .name")).to_have_text([str(FAR + 6), expected[0]])
    expect(page.locator(".notice")).to_have_count(0)
    page.goto(f"{far.url}/#{quote(json.dumps({'history': [FAR + 6]}))}")  # a link that a program wrote
    expect(shown).to_have_text(expected)
    page.get_by_role("button", name="A known user").click()
    page.get_by_label("User id", exact=True).fill(str(FAR + 3))
    page.get_by_role("button", name="Show").click()
    (known,) = far.post("/v1/recommend", {"users": [FAR + 3], "with_history": True}).json()["results"]
    expect(page.locator("#history li .name")).to_have_text([str(one["item"]) for one in known["seen"]])


def test_a_browser_that_would_cut_ids_says_so(open_page, far):
    page = open_page(of=far)
    page.add_init_script(
        "const old = JSON.parse; JSON.parse = (text, work) => old(text, work && ((k, v) => work(k, v)))"
    )
    page.reload()
    expect(page.get_by_role("alert").filter(has_text="newer browser")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_without_a_key_the_page_says_so(open_page, locked, scheme):
    page = open_page(of=locked, scheme=scheme)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert dialog.get_by_role("button", name="Use key").bounding_box()["height"] < 45
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="API key required")).to_be_visible()
    expect(page.get_by_role("button", name="Enter the key")).to_be_focused()
    expect(page.locator(".ghost")).to_have_count(0)
    expect(page.locator("#model")).to_be_hidden()
    expect(page.locator("#who")).to_be_hidden()
    nothing_in_the_way(page)
    page.get_by_role("button", name="Enter the key").click()
    expect(page.locator("#key-wrong")).to_be_hidden()
    dialog.get_by_label("API key").fill(KEY)
    page.keyboard.press("Enter")
    expect(page.get_by_text("The history is empty")).to_be_visible()
    expect(page.locator("#model")).to_be_visible()
    forgive(page, "401")


def test_a_key_that_cannot_be_right(open_page, locked):
    page = open_page(of=locked)
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("API key").fill("ключ-ключ-ключ-ключ")
    dialog.get_by_role("button", name="Use key").click()
    expect(dialog.get_by_role("alert")).to_contain_text("cannot be sent")
    expect(dialog).to_be_visible()
    dialog.get_by_label("API key").fill("another-key-of-some-length")
    dialog.get_by_role("button", name="Use key").click()
    expect(dialog.get_by_role("alert")).to_contain_text("rejected this key")
    nothing_in_the_way(page)
    assert page.evaluate("sessionStorage.length") == 0
    page.evaluate("sessionStorage.setItem('monogram-key', 'ключ')")
    page.reload()
    expect(dialog).to_be_visible()
    expect(dialog.get_by_role("alert")).to_be_hidden()
    forgive(page, "401")


def test_the_card(open_page, log):
    page = open_page({"history": items(log, 1)})
    page.get_by_text("About this model").click()
    card = page.locator("dl")
    for text in ("l2", "dropout", f"{log.n_items:,}", "Residual", "Memory of the weights"):
        expect(card).to_contain_text(text)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_error_is_told_and_can_be_tried_again(open_page, log, scheme):
    page = open_page({"history": items(log, 1), "other": "neighbours"}, scheme=scheme)
    expect(page.locator(".list ol > li")).to_have_count(20)
    page.route("**/v1/recommend", lambda route: route.abort())
    add(page).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="does not respond")).to_have_count(1)
    expect(page.get_by_role("button", name="Try again")).to_be_focused()
    expect(page.locator(".list.old ol > li")).to_have_count(20)
    expect(page.locator(".old").get_by_text("outdated")).to_have_count(2)
    assert page.get_by_role("alert").bounding_box()["y"] < page.locator(".old").first.bounding_box()["y"]
    nothing_in_the_way(page)
    page.unroute("**/v1/recommend")
    page.keyboard.press("Enter")
    expect(page.locator(".old")).to_have_count(0)
    expect(page.get_by_role("alert").filter(has_text="does not respond")).to_have_count(0)
    expect(page.locator(".list ol > li")).to_have_count(20)
    expect(add(page)).to_be_focused()
    forgive(page, "ERR_FAILED")


def test_one_of_two_models_fails(open_page, log):
    page = open_page({"history": items(log, 1), "other": "neighbours"})
    expect(page.locator(".list ol > li")).to_have_count(20)
    page.route("**/v1/recommend", lambda r: r.abort() if "neighbours" in r.request.post_data else r.continue_())
    add(page).click()
    expect(page.get_by_role("alert").filter(has_text="neighbours: The server does not respond")).to_be_visible()
    expect(page.locator(".list.old ol > li")).to_have_count(10)
    expect(page.locator(".list:not(.old) ol > li")).to_have_count(10)
    forgive(page, "ERR_FAILED")


def test_a_user_whose_list_failed_has_no_history_of_another(open_page, log):
    first, second = list(log.users)[:2]
    page = open_page({"mode": "user", "user": str(first)})
    expect(page.locator("#history li")).to_have_count(len(log.history(first)))
    page.route("**/v1/recommend", lambda route: route.abort())
    page.get_by_label("User id", exact=True).fill(str(second))
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    expect(page.locator("#history li")).to_have_count(0)
    forgive(page, "ERR_FAILED")


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


def test_a_long_history_can_be_scrolled_by_anyone(open_page, log):
    user = max(log.users, key=lambda one: len(log.history(one)))
    page = open_page({"mode": "user", "user": str(user)}, size=PHONE)
    expect(page.locator("#history li")).to_have_count(len(log.history(user)))
    nothing_in_the_way(page)


def test_at_the_narrowest(open_page, log):
    page = open_page({"history": items(log, 1)}, size={"width": 360, "height": 740})
    expect(page.locator(".list ol > li")).to_have_count(10)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    brand, theme = (page.locator(one).bounding_box() for one in (".brand", "#theme"))
    assert abs(brand["y"] + brand["height"] / 2 - theme["y"] - theme["height"] / 2) < 4
    assert page.locator(".list ol > li").first.bounding_box()["y"] < 520


@pytest.mark.skipif(AXE is None, reason="MONOGRAM_AXE does not name the script of axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_in_the_way_of_anyone(open_page, log, scheme):
    page = open_page({"history": items(log, 3), "other": "neighbours"}, scheme=scheme)
    expect(page.locator(".list")).to_have_count(2)
    page.get_by_text("About this model").first.click()
    nothing_in_the_way(page)
    page.get_by_role("button", name=re.compile("^Items similar to")).first.click()
    expect(page.get_by_role("dialog").locator("ol > li")).to_have_count(10)
    nothing_in_the_way(page)
