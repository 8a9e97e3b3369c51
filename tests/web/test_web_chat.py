"""The web chat in a real browser against the scripted server (SRV-70, SRV-72)."""

import json

import pytest

from conftest import fetch


# ---- sending and streaming

def test_an_answer_is_seen_while_it_streams_and_can_be_stopped(chat):
    chat.ask("a long one", wait=False)
    chat.sees("Line 2 of a long answer")
    assert chat.answer.get_attribute("aria-busy") == "true"
    assert "tok/s" in chat.answer.locator(".status-text").inner_text()
    chat.shot("streaming")

    chat.page.get_by_role("button", name="Stop the answer").click()

    chat.finished()
    assert "Stopped." in chat.answer.inner_text()
    assert "Line 199" not in chat.answer.inner_text()
    assert chat.page.get_by_role("button", name="Send message").count() == 1
    chat.ask("hello again")  # the stopped text is part of the history
    assert "Line 2" in chat.requests("/v1/chat/completions")[-1]["messages"][1]["content"]


def test_facts_and_context_are_told_after_an_answer(chat):
    chat.ask("hello there")
    facts = chat.answer.locator(".facts").inner_text()
    assert "42.0 tok/s" in facts and "first token" in facts and "tokens" in facts
    assert "of 4,096 tokens" in chat.page.locator("#context").inner_text()


def test_prefill_progress_comes_from_the_keepalives(chat, setup):
    setup(hold=True)
    chat.ask("prefill please", wait=False)
    chat.sees("Reading the prompt: 2,048 of 4,096 tokens")
    assert chat.page.get_by_role("progressbar", name="Prompt read").count() == 1
    chat.shot("prefill")
    setup(hold=False)
    chat.finished()
    assert "You said: prefill please" in chat.answer.inner_text()


def test_markdown_is_rendered_and_code_can_be_copied(chat):
    chat.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    chat.ask("a sample")
    assert chat.answer.locator("table td").count() == 9
    assert chat.answer.locator("h3, h4").count() == 2
    chat.answer.get_by_role("button", name="Copy code").click()
    copied = chat.page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("def longest_match(") and copied.endswith("return node, matched")
    chat.page.locator("#log").evaluate("e => { e.scrollTop = 0; }")
    chat.shot("markdown-light")


def test_a_hostile_answer_is_harmless(chat):
    chat.ask("hostile")
    assert chat.page.evaluate("window.pwned") is None
    assert chat.answer.locator(".md script, .md img, .md iframe, .md style").count() == 0
    hrefs = chat.answer.locator("a").evaluate_all("all => all.map((a) => a.href)")
    assert all(href.startswith("https://") for href in hrefs)
    chat.no_overflow()


# ---- changing what was said

def test_regenerate_keeps_the_answers_to_choose_from(chat):
    chat.ask("hello")
    chat.answer.get_by_role("button", name="Regenerate answer").click()
    chat.answer.get_by_text("2 / 2").wait_for()
    assert len(chat.requests("/v1/chat/completions")[-1]["messages"]) == 1
    chat.answer.get_by_role("button", name="Previous answer").click()
    chat.answer.get_by_text("1 / 2").wait_for()


def test_a_question_can_be_edited_and_sent_again(chat):
    chat.ask("first question")
    chat.ask("second question")
    chat.page.locator(".question").first.hover()
    chat.page.get_by_role("button", name="Edit message").first.click()
    assert "replaces everything below" in chat.page.locator(".edit-form").inner_text()
    chat.page.get_by_role("textbox", name="Edit message").fill("better question")
    chat.page.keyboard.press("Enter")
    chat.finished()
    assert chat.page.locator(".question").count() == 1
    assert "You said: better question" in chat.answer.inner_text()


# ---- reasoning and tools

def test_reasoning_is_open_while_thinking_and_folds_after(chat, setup):
    setup(hold=True)
    chat.ask("reason about 17 + 25", wait=False)
    chat.page.locator("details.reasoning[open].thinking").wait_for()
    chat.shot("thinking")
    setup(hold=False)
    chat.finished()
    assert not chat.page.locator("details.reasoning").evaluate("d => d.open")
    assert "42." in chat.answer.locator(".md").last.inner_text()
    chat.page.locator("details.reasoning summary").click()
    assert "37 + 5 = 42" in chat.page.locator(".reasoning-body").inner_text()


def test_tool_calls_are_shown_and_answered(chat):
    chat.page.click("#panel-toggle")
    chat.page.fill("#tools", '[{"name": "get_weather", "parameters": {"type": "object"}}]')
    chat.ask("what is the weather in Oslo?")
    call = chat.answer.locator(".tool-call")
    assert "get_weather" in call.inner_text() and '"city": "Oslo"' in call.inner_text()
    chat.shot("tool-call")
    chat.page.get_by_label("Result of get_weather").fill("-3 °C, light snow")
    chat.page.get_by_role("button", name="Send result").click()
    chat.sees("with light snow until Thursday")
    chat.finished()
    body = chat.requests("/v1/chat/completions")[-1]
    assert body["tools"][0]["function"]["name"] == "get_weather"
    assert body["messages"][1]["tool_calls"][0]["id"] == "call_1"
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_1", "name": "get_weather", "content": "-3 °C, light snow"}


# ---- errors

def test_a_refused_request_is_told_in_words_and_can_be_retried(chat):
    chat.allow_http_failures = True
    chat.ask("busy?")
    error = chat.page.get_by_role("alert").filter(has_text="The queue is full. Try again in 3 s.")
    assert error.count() == 1
    chat.shot("error")
    chat.page.get_by_role("button", name="Try again").click()
    chat.answer.get_by_text("You said: busy?").wait_for()
    assert chat.page.locator(".chooser").count() == 0  # the empty failed answer is gone


@pytest.mark.parametrize("word, kept, told", [
    ("broken", "This much arrived before the line went dead.", "The connection ended before the answer was complete."),
    ("engine", "A few words, then", "The engine failed: a step produced not-a-number."),
])
def test_a_stream_that_breaks_keeps_what_arrived(chat, word, kept, told):
    chat.ask(word)
    text = chat.answer.inner_text()
    assert kept in text and told in text and "kept above" in text
    chat.page.reload()
    chat.sees(kept)


def test_the_token_limit_is_told(chat):
    chat.ask("cutoff")
    assert "reached the token limit" in chat.answer.inner_text()


def test_a_key_is_asked_for_and_kept_for_the_tab(fake, make_chat, setup):
    fetch(fake + "/__reset", {})
    setup(key="sesame")
    chat = make_chat(fake)
    chat.allow_http_failures = True
    chat.page.goto(fake)
    chat.page.get_by_label("Key", exact=True).fill("wrong")
    chat.page.keyboard.press("Enter")
    chat.page.get_by_text("That key was not accepted.").wait_for()
    chat.page.get_by_label("Key", exact=True).fill("sesame")
    chat.page.keyboard.press("Enter")
    chat.page.locator("#model-name", has_not_text="…").wait_for()
    chat.page.reload()
    chat.page.locator("#model-name", has_not_text="…").wait_for()
    chat.ask("hello")
    assert chat.page.evaluate("sessionStorage.getItem('kvasir.api-key')") == "sesame"
    assert chat.page.evaluate("JSON.stringify(localStorage).includes('sesame')") is False


@pytest.mark.parametrize("model,told", [({"chat": False, "embeddings": True}, "POST /v1/embeddings answers"),
                                        ({"chat": False}, "POST /v1/completions answers")], ids=["vectors", "no template"])
def test_a_model_that_does_not_chat_says_so(fake, make_chat, setup, model, told):
    fetch(fake + "/__reset", {})
    setup(**model)
    chat = make_chat(fake, width=360).open()
    chat.page.locator(".welcome", has_text=told).wait_for()
    assert chat.page.locator(".idea").count() == 0
    assert chat.page.locator("#input").is_disabled() and chat.page.locator("#send").is_disabled()
    chat.no_overflow()
    chat.shot(f"no-chat-{'vectors' if 'embeddings' in model else 'template'}")


# ---- longer than the context (SRV-72)

@pytest.mark.parametrize("tokenize", [True, False])
def test_the_oldest_turns_are_dropped_with_a_line_that_says_so(fake, make_chat, setup, tokenize):
    fetch(fake + "/__reset", {})
    setup(context=80, tokenize=tokenize)
    chat = make_chat(fake)
    chat.allow_http_failures = True
    chat.open()
    chat.page.click("#panel-toggle")
    chat.page.fill("#system", "Answer briefly.")
    for i in range(7):
        chat.ask(f"question number {i} with a few more words in it")
    assert "You said: question number 6" in chat.answer.inner_text()
    line = chat.page.locator(".trim-line")
    assert "80 tokens" in line.inner_text() and "no longer sent" in line.inner_text()
    chat.shot(f"trimmed-{'counted' if tokenize else 'refused'}")
    sent = chat.requests("/v1/chat/completions")[-1]["messages"]
    assert [m["role"] for m in sent[:2]] == ["system", "user"]
    assert "number 0" not in json.dumps(sent) and "number 5" in json.dumps(sent)
    assert chat.page.locator(".question").count() == 7  # nothing is lost from the page


# ---- history

def test_history_survives_a_reload_and_can_be_renamed_exported_deleted(chat):
    chat.ask("remember this")
    chat.page.get_by_role("button", name="New conversation").click()
    chat.ask("another topic")
    chat.page.reload()
    chat.sees("You said: another topic")
    chat.page.locator("#conversations .open", has_text="remember this").click()
    chat.sees("You said: remember this")

    chat.page.get_by_role("button", name="Rename remember this").click()
    chat.page.get_by_role("textbox", name="Name", exact=True).fill("Kept for later")
    chat.page.keyboard.press("Enter")
    chat.page.locator("#conversations .open", has_text="Kept for later").wait_for()

    with chat.page.expect_download() as download:
        chat.page.get_by_role("button", name="Export Kept for later").click()
    with open(download.value.path(), encoding="utf-8") as file:
        exported = json.load(file)
    assert download.value.suggested_filename == "kvasir-kept-for-later.json"
    assert exported["conversations"][0]["messages"][0]["content"] == "remember this"

    chat.page.get_by_role("button", name="Delete Kept for later").click()
    chat.page.get_by_role("button", name="Delete", exact=True).click()
    chat.page.locator("#conversations .open", has_text="Kept for later").wait_for(state="detached")
    assert chat.page.locator("#conversations li").count() == 1


def test_an_answer_goes_on_while_another_conversation_is_read(chat):
    chat.ask("a long one", wait=False)
    chat.sees("Line 1 of")
    chat.page.get_by_role("button", name="New conversation").click()
    chat.ask("hello")
    assert chat.page.locator("#conversations .running:visible").count() == 1
    chat.page.locator("#conversations .open", has_text="a long one").click()
    chat.sees("Line 8 of")
    chat.page.keyboard.press("Escape")
    chat.finished()


def test_a_page_that_closes_keeps_what_arrived(chat):
    chat.ask("a long one", wait=False)
    chat.sees("Line 3 of")
    chat.page.reload()
    chat.sees("Line 3 of")
    told = ("The page was closed before the answer was complete.", "The connection broke while the answer was arriving.")
    assert any(words in chat.answer.inner_text() for words in told)
    again = [chat.answer.get_by_role("button", name=name).count() for name in ("Regenerate answer", "Try again")]
    assert sum(again) == 1


def test_focus_is_not_lost_when_messages_change(chat):
    chat.ask("hello")
    chat.answer.get_by_role("button", name="Regenerate answer").press("Enter")
    chat.sees("2 / 2")
    previous = chat.answer.get_by_role("button", name="Previous answer")
    previous.press("Enter")
    chat.sees("1 / 2")
    assert chat.page.evaluate("document.activeElement !== document.body")
    chat.page.get_by_role("button", name="Edit message").first.press("Enter")
    chat.page.keyboard.press("Escape")
    assert chat.page.evaluate("document.activeElement.getAttribute('aria-label')") == "Edit message"
