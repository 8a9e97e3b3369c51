"""Runs the tests of the pure modules in a page and shows each as a test of its own."""


def test_modules(fake, make_chat):
    chat = make_chat(fake)
    chat.page.goto(fake + "/unit/index.html", wait_until="commit")
    chat.page.locator("body[data-done]").wait_for(state="attached", timeout=300000)
    results = chat.page.evaluate("window.results")
    failed = [f"{r['name']}: {r['error']}" for r in results if r["error"]]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    assert len(results) > 90
    assert failed == []
