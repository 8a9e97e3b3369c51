"""A short round against a real server, given by --url."""

import json

import pytest

from conftest import fetch


@pytest.fixture
def real(request, make_chat):
    url = request.config.getoption("--url")
    if not url:
        pytest.skip("no --url")
    return make_chat(url.rstrip("/"))


def test_the_real_server_serves_the_page_with_its_policy(real):
    response = real.page.goto(real.url + "/")
    assert response.ok and "default-src 'self'" in response.headers["content-security-policy"]
    again = real.page.goto(real.url + "/chat")
    assert again.ok


@pytest.mark.parametrize("width", [360, 1440])
def test_a_real_answer_streams_and_stays(real, width):
    real.page.set_viewport_size({"width": width, "height": 800})
    real.open()
    if width == 1440:
        real.page.click("#panel-toggle")
    real.page.fill("#input", "Say hello.")
    real.page.press("#input", "Enter")
    real.finished(timeout=120000)
    text = real.answer.inner_text()
    assert "tok/s" in text and real.answer.locator(".error").count() == 0, text
    real.no_overflow()
    real.shot(f"real-{width}")
    real.page.reload()
    real.answer.wait_for()
    assert real.page.locator(".question .bubble").inner_text() == "Say hello."


def without_an_end(route):
    """A small model may end its long story after four tokens: only the reader ends this one."""
    route.continue_(post_data=json.dumps(route.request.post_data_json | {"ignore_eos": True}))


def test_a_real_answer_stops(real):
    real.open()
    real.page.route("**/v1/chat/completions", without_an_end)
    real.ask("Tell a very long story.", wait=False)
    real.page.locator(".answer .status-text", has_text="First token").wait_for(timeout=120000)
    real.page.keyboard.press("Escape")
    real.finished()
    assert "Stopped." in real.answer.inner_text()


def test_the_facts_and_bars_of_the_real_server(real):
    real.open()
    real.page.click("#model-chip")
    real.page.locator("#bars .bar").first.wait_for()
    assert fetch(real.url + "/v1/models")["data"][0]["id"] in real.page.locator("#facts").inner_text()
    real.shot("real-server-panel")
