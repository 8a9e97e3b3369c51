"""Full queues, deadlines, full contexts."""
import concurrent.futures
import json
import re
import time

import pytest

import wire
from scripted_model import LOOP, trigger

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def narrow(start, script_folder):
    with start(script_folder, "--batch", "1", "--queue", "1") as server:
        yield server


@pytest.mark.parametrize("path,body", [
    (CHAT, {"messages": wire.user("[plain]")}), (CHAT, {"messages": wire.user("[plain]"), "stream": True}),
    (COMPLETIONS, {"prompt": "a"}), ("/v1/responses", {"input": "a"}),
    ("/v1/messages", {"messages": wire.user("[plain]"), "max_tokens": 5}),
    ("/api/chat", {"messages": wire.user("[plain]")})], ids=["chat", "stream", "completions", "responses", "messages",
                                                             "ollama"])
def test_a_full_queue_is_429_with_retry_after_sch40(narrow, path, body):
    with wire.endless(narrow):
        wire.wait_until(lambda: wire.batch(narrow)["active_rows"] == 1, 5)
        with wire.endless(narrow):
            wire.wait_until(lambda: wire.batch(narrow)["queued"] == 1, 5)
            reply = wire.post(narrow, path, body)
            assert reply.status_code == 429, reply.text
            assert int(reply.headers["retry-after"]) >= 1
            assert wire.get_json(narrow, "/health") == {"status": "ok"}
    if path == "/v1/messages":
        assert reply.json()["error"]["type"] == "rate_limit_error"
    elif path != "/api/chat":
        wire.openai_error(reply, 429, "queue_full")
    wire.wait_until(lambda: wire.n_requests(narrow) == 0, 2)


def test_one_who_waits_is_served_when_the_row_ends(narrow):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with wire.endless(narrow):
            wire.wait_until(lambda: wire.batch(narrow)["active_rows"] == 1, 5)
            waiter = pool.submit(wire.chat, narrow, "[plain]")
            wire.wait_until(lambda: wire.batch(narrow)["queued"] == 1, 5)
        assert waiter.result(10)["choices"][0]["finish_reason"] == "stop"


def test_a_waiter_who_leaves_frees_its_place_c25(narrow):
    with wire.endless(narrow):
        wire.wait_until(lambda: wire.batch(narrow)["active_rows"] == 1, 5)
        with wire.endless(narrow):
            wire.wait_until(lambda: wire.batch(narrow)["queued"] == 1, 5)
        wire.wait_until(lambda: wire.batch(narrow)["queued"] == 0, 2)
    wire.wait_until(lambda: wire.n_requests(narrow) == 0, 2)


def test_who_waits_too_long_is_503_queue_timeout_sch41(narrow):
    with wire.endless(narrow):
        wire.wait_until(lambda: wire.batch(narrow)["active_rows"] == 1, 5)
        for stream in (False, True):
            reply = wire.post(narrow, CHAT, {"messages": wire.user("[plain]"), "timeout_ms": 200, "stream": stream})
            wire.openai_error(reply, 503, "queue_timeout")
            assert int(reply.headers["retry-after"]) >= 1
    wire.wait_until(lambda: wire.n_requests(narrow) == 0, 2)


def test_a_stream_that_waits_gets_its_headers_after_a_second_srv33(narrow):
    """And an error after that is an event without [DONE] (SRV-34)."""
    with wire.endless(narrow):
        wire.wait_until(lambda: wire.batch(narrow)["active_rows"] == 1, 5)
        began = time.monotonic()
        body = {"messages": wire.user("[plain]"), "timeout_ms": 2500, "stream": True}
        with wire.CLIENT.stream("POST", narrow.url + CHAT, json=body) as reply:
            waited = time.monotonic() - began
            raw = reply.read()
    assert reply.status_code == 200 and 0.9 <= waited < 2.2
    last = raw.decode().rstrip().rsplit("\n\n", 1)[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "queue_timeout" and b"[DONE]" not in raw
    wire.wait_until(lambda: wire.n_requests(narrow) == 0, 2)


def test_a_deadline_ends_the_answer_with_length_sch41(scripted):
    choice = wire.chat(scripted, "[loop]", max_tokens=60000, timeout_ms=300)["choices"][0]

    assert choice["finish_reason"] == "length" and choice["message"]["content"].startswith(LOOP)


CONTEXT = 512


@pytest.fixture(scope="module")
def short(start, script_folder):
    with start(script_folder, "--ctx-size", str(CONTEXT)) as server:
        yield server


def prompt_of(n_tokens):
    return "x" * (n_tokens - 1) + trigger("loop")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers_c36(short, stream):
    for n in (CONTEXT + 1, 600):
        reply = wire.post(short, COMPLETIONS, {"prompt": prompt_of(n), "stream": stream})
        error = wire.openai_error(reply, 400, "context_length_exceeded")
        assert error["message"] == f"prompt of {n} tokens exceeds the context of {CONTEXT}"  # FIT-21


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_more_tokens_than_fit_are_refused_with_the_numbers_c36(short, stream):
    reply = wire.post(short, COMPLETIONS, {"prompt": prompt_of(500), "max_tokens": 100, "stream": stream})

    error = wire.openai_error(reply, 400, "context_over_budget")
    assert error["type"] == "memory_admission"
    assert error["message"].startswith("prompt of 500 tokens + max_tokens 100 needs a context of 600; "
                                       f"this server can hold {CONTEXT} ("), error  # FIT-20
    assert error["message"].endswith(". Lower max_tokens or shorten the prompt; see /stats")


@pytest.mark.parametrize("n,left", [(CONTEXT - 1, 1), (500, 12), (100, 412)])
def test_a_default_limit_is_lowered_to_fit_c36(short, n, left):
    whole = wire.ok(short, COMPLETIONS, {"prompt": prompt_of(n)})
    chunks = wire.chat_chunks(short, {"prompt": prompt_of(n)}, COMPLETIONS)

    assert whole["choices"][0]["finish_reason"] == "length" and wire.finish_reasons(chunks) == ["length"]
    for usage in (whole["usage"], chunks[-1]["usage"]):
        assert usage["prompt_tokens"] == n and usage["completion_tokens"] == left


def test_a_prompt_that_fills_the_context_is_alike_stream_or_not_c36(short):
    """No place is left to feed an answer back: one token, or a refusal with both numbers."""
    replies = [wire.post(short, COMPLETIONS, {"prompt": prompt_of(CONTEXT), "stream": s}) for s in (False, True)]

    assert replies[0].status_code == replies[1].status_code
    if replies[0].status_code == 400:
        for reply in replies:
            assert str(CONTEXT) in wire.openai_error(reply, 400)["message"]
    else:
        assert replies[0].json()["usage"]["completion_tokens"] == 1


def test_the_same_limits_have_each_surfaces_shape_c36(short):
    long = wire.user("x" * 600)
    messages = wire.post(short, "/v1/messages", {"messages": long, "max_tokens": 5})
    ollama = wire.post(short, "/api/chat", {"messages": long})
    chat = wire.post(short, CHAT, {"messages": long})
    responses = wire.post(short, "/v1/responses", {"input": "x" * 600})

    for reply in (messages, ollama, chat, responses):
        assert reply.status_code == 400 and re.search(r"prompt of 6\d\d tokens exceeds the context of 512", reply.text)
    assert messages.json()["error"]["type"] == "invalid_request_error" and isinstance(ollama.json()["error"], str)
