"""The end of the server: SIGTERM, and holding it for a while."""
import concurrent.futures
import contextlib
import time

import pytest

import wire

CHAT = "/v1/chat/completions"


def test_sigterm_lets_a_stream_finish_sch32(start, script_folder):
    n_tokens = 1500
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
    with start(script_folder, may_end=True) as server, wire.endless(server, stream=True) as running:
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
    with start(script_folder, may_end=True) as server, wire.endless(server, stream=True) as running:
        running.recv(65536)
        server.terminate()
        time.sleep(0.3)
        assert server.process.poll() is None
        server.terminate()
        server.process.wait(2)


def test_the_grace_of_a_shutdown_is_bounded_sch32(start, script_folder):
    with start(script_folder, "--shutdown-timeout", "0.5", may_end=True) as server:
        with wire.endless(server, stream=True) as running:
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
