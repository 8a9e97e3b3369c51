"""Many at once, and those who leave."""
import concurrent.futures
import json
import random
import socket
import struct
import time

import pytest

import wire

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NONCES = ["zebra", "lemon", "tiger", "violin", "copper", "island", "candle", "pepper", "rocket", "garden", "marble",
          "window", "basket", "dragon", "forest", "guitar", "hammer", "jacket", "kettle", "ladder", "magnet", "needle",
          "orange", "pillow"]
N_TOKENS = 6


def nonce_body(nonce):
    messages = [*wire.user(f"Say {nonce} again and again."),
                {"role": "assistant", "content": f"{nonce} {nonce} {nonce}"}]
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
    """Two seconds, and one step however long that is on this machine (SCH-36: it stops within one)."""
    began = time.monotonic()
    wire.complete(prefilling, [7] * 512, max_tokens=0, cache=False)
    a_step = time.monotonic() - began
    words = " ".join(random.Random(stream).choices(NONCES, k=4000))
    wire.wait_until(lambda: wire.n_requests(prefilling) == 0, 30)

    connection = wire.connect(prefilling)
    connection.sendall(wire.request_bytes(COMPLETIONS, {"prompt": words, "max_tokens": 50, "stream": stream}))
    try:
        wire.wait_until(lambda: wire.batch(prefilling)["preparing_rows"] == 1, 30 + a_step)  # told after a step
        time.sleep(0.3)
    finally:
        connection.close()

    wire.wait_until(lambda: wire.n_requests(prefilling) == 0, 2 + 2 * a_step)  # the step's length varies
    assert blocks_of_rows(prefilling) == 0
