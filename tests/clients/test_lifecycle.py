"""Many at once, those who leave, full queues, full contexts, and the end of the server."""
import concurrent.futures
import contextlib
import json
import random
import re
import socket
import struct
import time

import pytest

import wire
from scripted_model import LOOP, trigger

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NONCES = ["zebra", "lemon", "tiger", "violin", "copper", "island", "candle", "pepper", "rocket", "garden", "marble",
          "window", "basket", "dragon", "forest", "guitar", "hammer", "jacket", "kettle", "ladder", "magnet", "needle",
          "orange", "pillow"]
N_TOKENS = 8


def nonce_body(nonce):
    messages = [*wire.user(f"Say {nonce} again and again."), {"role": "assistant", "content": f"{nonce} {nonce} {nonce}"}]
    return {"messages": messages, "temperature": 0, "max_tokens": N_TOKENS, "add_generation_prompt": False,
            "continue_final_message": True}


def run_and_maybe_leave(server, nonce, leave_after):
    """(text, did it complete). leave_after: deltas read before the socket is dropped; None: all."""
    text, n = "", 0
    with wire.CLIENT.stream("POST", server.url + CHAT, json={**nonce_body(nonce), "stream": True}) as reply:
        for line in reply.iter_lines():
            if line == "data: " + wire.DONE:
                return text, True
            if line.startswith("data: "):
                if n == leave_after:
                    return text, False
                n += 1
                text += "".join(c["delta"].get("content") or "" for c in json.loads(line[6:])["choices"])
    raise AssertionError("the stream broke off: " + text)


def test_24_chats_at_once_stay_apart_while_a_third_leaves_c24(demo):
    alone = {n: wire.ok(demo, CHAT, nonce_body(n))["choices"][0]["message"]["content"] for n in NONCES}
    rng = random.Random(11)
    assert sum(n in alone[n].lower() for n in NONCES) > len(NONCES) / 2, "the nonces do not show"

    for _ in range(3):
        leavers = set(rng.sample(NONCES, len(NONCES) // 3))
        jobs = {n: rng.randint(0, N_TOKENS) if n in leavers else None for n in NONCES}
        with concurrent.futures.ThreadPoolExecutor(len(NONCES)) as pool:
            answers = dict(zip(jobs, pool.map(lambda job: run_and_maybe_leave(demo, *job), jobs.items())))
        for nonce, (text, is_whole) in answers.items():
            assert text == alone[nonce] if is_whole else alone[nonce].startswith(text), nonce
            assert is_whole or nonce in leavers
            assert not [n for n in NONCES if n in text.lower() and n != nonce], (nonce, text)
    wire.wait_until(lambda: wire.n_requests(demo) == 0, 2)


def test_rows_at_once_stream_as_alone_c24(scripted):
    names = ["plain", "count", "unicode", "think", "tool"] * 6
    body = lambda name: {"messages": wire.user(f"[{name}]"), "tools": wire.OPENAI_TOOLS}
    alone = {name: wire.joined(wire.chat_chunks(scripted, body(name))) for name in set(names)}

    with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
        texts = list(pool.map(lambda name: wire.joined(wire.chat_chunks(scripted, body(name))), names))

    assert texts == [alone[name] for name in names]


def drop(connection):
    """Closes with a reset, as a killed client does."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def blocks_of_rows(server):
    return wire.get_json(server, "/stats")["kv"]["row_blocks"]


@pytest.mark.parametrize("leave", [socket.socket.close, drop], ids=["close", "reset"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_closed_socket_frees_its_row_in_decode_c25(scripted, stream, leave):
    body = {"messages": wire.user("[loop]"), "max_tokens": 60000, "ignore_eos": True, "stream": stream}
    wire.wait_until(lambda: wire.n_requests(scripted) == 0, 5)

    for _ in range(5):
        connection = wire.connect(scripted)
        connection.sendall(wire.request_bytes(CHAT, body))
        wire.wait_until(lambda: wire.batch(scripted)["active_rows"] == 1, 5)
        leave(connection)
        wire.wait_until(lambda: wire.n_requests(scripted) == 0, 2)
    assert blocks_of_rows(scripted) == 0


@pytest.fixture(scope="module", params=[[], ["--max-step-tokens", "136"]], ids=["default steps", "small steps"])
def prefilling(request, start, demo_model):
    with start(demo_model, *request.param) as server:
        yield server


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_closed_socket_frees_its_row_in_prefill_c25(prefilling, stream):
    """However long a step is on this machine (SCH-36: it stops within one)."""
    words = " ".join(random.Random(stream).choices(NONCES, k=4000))
    wire.wait_until(lambda: wire.n_requests(prefilling) == 0, 30)

    connection = wire.connect(prefilling)
    connection.sendall(wire.request_bytes(COMPLETIONS, {"prompt": words, "max_tokens": 50, "stream": stream}))
    wire.wait_until(lambda: wire.batch(prefilling)["preparing_rows"] == 1, 5)
    time.sleep(0.3)
    connection.close()

    wire.wait_until(lambda: wire.n_requests(prefilling) == 0, 2)
    assert blocks_of_rows(prefilling) == 0


@pytest.fixture(scope="module")
def narrow(start, script_folder):
    with start(script_folder, "--batch", "1", "--queue", "1") as server:
        yield server


@contextlib.contextmanager
def endless(server, stream=False):
    """A request that runs, or waits, until the block ends."""
    connection = wire.connect(server)
    connection.sendall(wire.request_bytes(CHAT, {"messages": wire.user("[loop]"), "max_tokens": 60000,
                                                 "stream": stream}))
    try:
        yield connection
    finally:
        connection.close()


@pytest.mark.parametrize("path,body", [
    (CHAT, {"messages": wire.user("[plain]")}), (CHAT, {"messages": wire.user("[plain]"), "stream": True}),
    (COMPLETIONS, {"prompt": "a"}), ("/v1/responses", {"input": "a"}),
    ("/v1/messages", {"messages": wire.user("[plain]"), "max_tokens": 5}),
    ("/api/chat", {"messages": wire.user("[plain]")})], ids=["chat", "stream", "completions", "responses", "messages",
                                                             "ollama"])
def test_a_full_queue_is_429_with_retry_after_sch40(narrow, path, body):
    with endless(narrow):
        wire.wait_until(lambda: wire.batch(narrow)["active_rows"] == 1, 5)
        with endless(narrow):
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
        with endless(narrow):
            wire.wait_until(lambda: wire.batch(narrow)["active_rows"] == 1, 5)
            waiter = pool.submit(wire.chat, narrow, "[plain]")
            wire.wait_until(lambda: wire.batch(narrow)["queued"] == 1, 5)
        assert waiter.result(10)["choices"][0]["finish_reason"] == "stop"


def test_a_waiter_who_leaves_frees_its_place_c25(narrow):
    with endless(narrow):
        wire.wait_until(lambda: wire.batch(narrow)["active_rows"] == 1, 5)
        with endless(narrow):
            wire.wait_until(lambda: wire.batch(narrow)["queued"] == 1, 5)
        wire.wait_until(lambda: wire.batch(narrow)["queued"] == 0, 2)
    wire.wait_until(lambda: wire.n_requests(narrow) == 0, 2)


def test_who_waits_too_long_is_503_queue_timeout_sch41(narrow):
    with endless(narrow):
        wire.wait_until(lambda: wire.batch(narrow)["active_rows"] == 1, 5)
        for stream in (False, True):
            reply = wire.post(narrow, CHAT, {"messages": wire.user("[plain]"), "timeout_ms": 200, "stream": stream})
            wire.openai_error(reply, 503, "queue_timeout")
            assert int(reply.headers["retry-after"]) >= 1
    wire.wait_until(lambda: wire.n_requests(narrow) == 0, 2)


def test_a_stream_that_waits_gets_its_headers_after_a_second_srv33(narrow):
    """And an error after that is an event without [DONE] (SRV-34)."""
    with endless(narrow):
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


def test_sigterm_lets_a_stream_finish_sch32(start, script_folder):
    n_tokens = 3000
    with start(script_folder, may_end=True) as server, wire.connect(server) as running:
        running.sendall(wire.request_bytes(CHAT, {"messages": wire.user("[loop]"), "max_tokens": n_tokens,
                                                  "stream": True}))
        raw = running.recv(65536)
        server.terminate()
        while piece := running.recv(65536):
            raw += piece
        assert b"data: [DONE]\n\n" in raw and b'"completion_tokens":%d' % n_tokens in raw
        assert server.process.wait(10) == 0


@pytest.mark.parametrize("connected", ["before", "after"])
def test_a_new_request_after_sigterm_is_503_sch32(start, script_folder, connected):
    """On a connection made before the signal, and on one made after it."""
    request = wire.request_bytes(CHAT, {"messages": wire.user("[plain]")})
    with start(script_folder, may_end=True) as server, endless(server, stream=True) as running:
        running.recv(65536)
        early = wire.connect(server)
        early.sendall(request[:20])  # so that it is not idle
        server.terminate()
        time.sleep(0.3)
        if connected == "before":
            early.sendall(request[20:])
            answer = early.recv(65536)
            assert answer.startswith(b"HTTP/1.1 503") and b"engine_closed" in answer, answer
        else:
            try:
                status, headers, body = wire.exchange(server, request)
            except ConnectionError as error:
                pytest.fail(f"no 503 but {error!r}")
            assert status == 503 and b"engine_closed" in body and int(headers["retry-after"]) >= 1
        early.close()


def test_a_second_signal_ends_at_once_sch32(start, script_folder):
    with start(script_folder, may_end=True) as server, endless(server, stream=True) as running:
        running.recv(65536)
        server.terminate()
        time.sleep(0.3)
        assert server.process.poll() is None
        server.terminate()
        server.process.wait(2)


def test_the_grace_of_a_shutdown_is_bounded_sch32(start, script_folder):
    with start(script_folder, "--shutdown-timeout", "0.5", may_end=True) as server:
        with endless(server, stream=True) as running:
            running.recv(65536)
            server.terminate()
            raw = b""
            with contextlib.suppress(ConnectionError):
                while piece := running.recv(65536):
                    raw += piece
        assert server.process.wait(5) == 0
        assert b"data: [DONE]" not in raw and b"engine_closed" in raw  # SRV-34


def test_drain_waits_and_resume_goes_on_sch31(start, script_folder):
    with start(script_folder) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert wire.ok(server, "/admin/drain", {}) == {"drained": True}
        waiter = pool.submit(wire.chat, server, "[plain]")
        wire.wait_until(lambda: wire.batch(server)["queued"] == 1, 5)
        assert wire.post(server, "/admin/resume", {}).status_code == 200
        assert waiter.result(10)["choices"][0]["finish_reason"] == "stop"
