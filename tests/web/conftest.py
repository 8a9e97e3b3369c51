"""Options and fixtures: one browser a run, one fresh page (and a reset fake server) a test.

--url URL     also run the smoke tests against a real server there
--shots DIR   write screenshots there
"""

import json
import os
import pathlib
import urllib.request

import pytest
from playwright.sync_api import sync_playwright

import fake_server

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
# A failed request is logged by the browser itself; tests that provoke one say so.
HTTP_FAILURE = "Failed to load resource"


def pytest_addoption(parser):
    parser.addoption("--url", default=None)
    parser.addoption("--shots", default=None)


@pytest.fixture(scope="session")
def fake():
    server, url = fake_server.start()
    yield url
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    args = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=args)
        yield chromium
        chromium.close()


class Chat:
    """A page with what tests say about a chat."""

    def __init__(self, page, url, shots):
        self.page, self.url, self.shots = page, url, shots
        self.problems, self.allow_http_failures = [], False
        page.on("console", self.on_console)
        page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        page.on("request", self.on_request)

    def on_console(self, message):
        expected = self.allow_http_failures and HTTP_FAILURE in message.text
        if message.type in ("error", "warning") and not expected:
            self.problems.append(f"console: {message.text} {message.location}")

    def on_request(self, request):
        if not request.url.startswith((self.url, "blob:")):
            self.problems.append(f"external request: {request.url}")

    def open(self, path="/"):
        self.page.goto(self.url + path)
        self.page.locator("#model-name", has_not_text="…").wait_for()
        return self

    def ask(self, text, wait=True):
        self.page.fill("#input", text)
        self.page.press("#input", "Enter")
        if wait:
            self.finished()

    def finished(self, timeout=30000):
        self.page.locator("#messages > .answer").last.and_(self.page.locator("[aria-busy=false]")).wait_for(timeout=timeout)

    def sees(self, text):
        self.page.locator("#messages").get_by_text(text).first.wait_for()

    @property
    def answer(self):
        return self.page.locator("#messages > .answer").last

    def shot(self, name):
        if self.shots:
            self.page.screenshot(path=str(self.shots / f"{name}.png"))

    def no_overflow(self):
        wide = self.page.evaluate("""() => [...document.querySelectorAll('body *')].filter((e) => {
            if (e.closest('pre, .table-scroll, svg, .visually-hidden, [hidden]') || e.matches('option')) return false;
            const box = e.getBoundingClientRect();
            return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
        }).map((e) => e.tagName + '#' + e.id + '.' + e.className)""")
        assert wide == []
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    def requests(self, path):
        log = fetch(self.url + "/__log")
        return [entry.get("body") for entry in log if entry["path"] == path]


def fetch(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=data)) as response:
        return json.load(response)


@pytest.fixture(scope="session")
def shots(request):
    folder = request.config.getoption("--shots")
    if not folder:
        return None
    path = pathlib.Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def make_chat(browser, shots):
    chats = []

    def make(url, width=1440, height=900, **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(10000)
        chat = Chat(context.new_page(), url, shots)
        chats.append(chat)
        return chat

    yield make
    problems = [problem for chat in chats for problem in chat.problems]
    for chat in chats:
        chat.page.context.close()
    assert problems == [], "the page complained or left its origin"


@pytest.fixture
def chat(fake, make_chat):
    fetch(fake + "/__reset", {})
    return make_chat(fake).open()


@pytest.fixture
def setup(fake):
    """Changes the fake server's behaviour."""
    return lambda **values: fetch(fake + "/__set", values)
