"""Widths, themes, keyboard and screen readers."""

import pytest

from conftest import fetch

# Text on its ground, as variables of style.css; 4.5:1 is WCAG AA for text.
TEXT_PAIRS = [(ink, ground) for ground in ("--paper", "--raised", "--sunken") for ink in
              ("--ink", "--quiet", "--accent", "--danger", "--code-string", "--code-number", "--code-keyword")] + \
             [("--ink", "--accent-soft"), ("--accent-ink", "--accent"), ("--ink", "--danger-soft"), ("--quiet", "--danger-soft")]


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(fake, make_chat, width, scheme):
    fetch(fake + "/__reset", {})
    chat = make_chat(fake, width=width, height=760, color_scheme=scheme).open()
    chat.no_overflow()
    chat.shot(f"welcome-{scheme}-{width}")
    chat.ask("a sample")
    chat.ask("what is the weather in Oslo?")
    chat.ask("unbreakable" * 40)
    chat.no_overflow()
    chat.shot(f"chat-{scheme}-{width}")
    chat.page.locator("#log").evaluate("e => { e.scrollTop = 120; }")
    chat.shot(f"chat-top-{scheme}-{width}")
    for name in ("Prompt", "Sampling", "Server"):
        if not chat.page.locator("#panel").is_visible():
            chat.page.click("#panel-toggle")
        chat.page.get_by_role("tab", name=name).click()
        if name == "Sampling":
            chat.page.get_by_label("Shape probabilities with a curve").check()
        chat.page.wait_for_timeout(250)
        chat.no_overflow()
        chat.shot(f"panel-{name.lower()}-{scheme}-{width}")
    if width == 360:
        chat.page.keyboard.press("Escape")
        chat.page.click("#sidebar-toggle")
        chat.no_overflow()
        chat.shot(f"list-{scheme}-{width}")


def test_the_theme_follows_the_system_until_it_is_chosen(fake, make_chat):
    chat = make_chat(fake, color_scheme="dark").open()
    ground = lambda: chat.page.evaluate("getComputedStyle(document.body).backgroundColor")
    dark = ground()
    chat.page.emulate_media(color_scheme="light")
    light = ground()
    assert dark != light
    chat.page.get_by_role("button", name="Use the dark theme").click()
    assert ground() == dark
    chat.page.reload()
    assert ground() == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(fake, make_chat, scheme):
    chat = make_chat(fake, color_scheme=scheme).open()
    contrast = """(pair) => {
        const probe = document.body.appendChild(document.createElement('i'));
        const light = (name) => {
            probe.style.color = `var(${name})`;
            const [r, g, b] = getComputedStyle(probe).color.match(/[\\d.]+/g).map((v) => {
                const c = v / 255;
                return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const [a, b] = pair.map(light).sort((x, y) => y - x);
        probe.remove();
        return (a + 0.05) / (b + 0.05);
    }"""
    low = {pair: round(ratio, 2) for pair in TEXT_PAIRS if (ratio := chat.page.evaluate(contrast, list(pair))) < 4.5}
    assert low == {}


def focus_name(page):
    return page.evaluate("""() => {
        const e = document.activeElement;
        const label = e.labels && e.labels[0] && e.labels[0].textContent;
        return e.getAttribute('aria-label') || e.title || label || e.textContent.trim();
    }""")


def test_the_keyboard_is_enough(chat):
    page = chat.page
    assert focus_name(page) == "Message"
    page.keyboard.type("first")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("a long one")
    page.keyboard.press("Enter")
    chat.sees("Line 2 of")
    page.keyboard.press("Escape")
    chat.finished()
    assert "first\na long one" == page.locator(".bubble").inner_text()

    seen = []
    for _ in range(40):  # once round the page, backwards from the message box
        page.keyboard.press("Shift+Tab")
        name = focus_name(page)
        if name == "Regenerate answer" and "regenerated" not in seen:
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none"
            page.keyboard.press("Enter")
            page.get_by_role("button", name="Stop the answer").wait_for()
            page.keyboard.press("Escape")
            chat.finished()
            seen.append("regenerated")
            page.focus("#log")
            continue
        seen.append(name)
        if name == "Skip to the message box":
            break
    for wanted in ("regenerated", "Settings", "Model facts", "New conversation", "Skip to the message box"):
        assert wanted in seen, seen
    page.keyboard.press("Enter")
    assert focus_name(page) == "Message"


def test_tabs_and_drawers_by_keyboard(fake, make_chat):
    chat = make_chat(fake, width=360, height=740).open()
    page = chat.page
    page.focus("#panel-toggle")
    page.keyboard.press("Enter")
    assert focus_name(page) == "Close settings"
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert focus_name(page) == "Sampling" and page.locator("#tab-sampling").is_visible()
    page.keyboard.press("End")
    assert focus_name(page) == "Server"
    assert page.evaluate("document.getElementById('main').inert") is True
    page.keyboard.press("Escape")
    assert focus_name(page) == "Settings"
    assert page.evaluate("document.getElementById('main').inert") is False


def test_everything_that_can_be_used_has_a_name(chat):
    chat.ask("a sample")
    chat.ask("what is the weather in Oslo?")
    chat.page.click("#panel-toggle")
    unnamed = []
    for tab in ("Prompt", "Sampling", "Server"):
        chat.page.get_by_role("tab", name=tab).click()
        if tab == "Sampling":
            chat.page.get_by_label("Shape probabilities with a curve").check()
        unnamed += chat.page.evaluate("""() => [...document.querySelectorAll(
                'button, input, textarea, select, a, progress, [role=meter], [role=slider], [tabindex]')]
            .filter((e) => e.checkVisibility() && !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') ||
                           (e.labels && e.labels.length) || e.textContent.trim()))
            .map((e) => e.outerHTML.slice(0, 90))""")
    assert unnamed == []


def test_finished_blocks_are_spoken_politely(chat):
    chat.ask("a sample")
    region = chat.page.locator("#announcer")
    assert region.get_attribute("aria-live") == "polite"
    spoken = region.locator("p").all_inner_texts()
    assert spoken[-1] == "The answer is complete."
    assert any("hit rate" in text for text in spoken)


def test_reduced_motion_is_respected(fake, make_chat):
    fetch(fake + "/__reset", {})
    chat = make_chat(fake, reduced_motion="reduce").open()
    chat.ask("a long one", wait=False)
    chat.sees("Line 2 of")
    assert chat.page.evaluate("document.getAnimations().length") == 0
    chat.page.keyboard.press("Escape")
    chat.finished()
