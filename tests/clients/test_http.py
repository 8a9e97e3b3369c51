"""The HTTP rules (SRV-1…6): sizes, keys, origins, hosts, headers, names of models."""
import json

import openai
import pytest

import wire

CHAT = "/v1/chat/completions"
PLAIN = {"messages": wire.user("[plain]")}
FOREIGN = "http://a.test"


@pytest.fixture(scope="module")
def locked(start, script_folder):
    """Keys, any origin, strict names, small bodies."""
    flags = ["--api-key", "first-key", "--api-key", "second-key", "--admin-key", "admin-key", "--allowed-origins", "*",
             "--model-id", "served", "--alias", "also", "--strict-model", "--max-body", "0.01"]
    with start(script_folder, *flags) as server:
        yield server


def with_key(key="first-key"):
    return {"Authorization": f"Bearer {key}"}


def test_health_is_exactly_that_srv18(scripted):
    for path in ("/health", "/v1/health"):
        status, headers, body = wire.exchange(scripted, wire.request_bytes(path, b"", "GET"))
        assert status == 200 and body == b'{"status": "ok"}'
        assert headers["x-kvasir-version"] and headers["x-request-id"]


def test_request_ids_are_echoed_or_made_srv6(scripted):
    echoed = wire.CLIENT.get(scripted.url + "/health", headers={"x-request-id": "mine-42"})
    made = {wire.CLIENT.get(scripted.url + "/health").headers["x-request-id"] for _ in range(3)}

    assert echoed.headers["x-request-id"] == "mine-42" and len(made) == 3
    stream = wire.post(scripted, CHAT, {**PLAIN, "stream": True}, **{"x-request-id": "s-1"})
    assert stream.headers["x-request-id"] == "s-1"


def test_unknown_paths_and_methods(scripted):
    wire.openai_error(wire.CLIENT.get(scripted.url + "/nowhere"), 404, "not_found")
    wrong = wire.CLIENT.get(scripted.url + CHAT)
    assert wrong.status_code == 405 and "POST" in wrong.headers["allow"]


def test_aliases_of_the_paths_are_served(scripted):
    for path in ("/chat/completions", CHAT):
        assert wire.post(scripted, path, PLAIN).status_code == 200
    assert wire.post(scripted, "/completions", {"prompt": "a"}).status_code == 200


def test_a_connection_serves_several_requests_srv1(scripted):
    data = wire.request_bytes("/health", b"", "GET")
    with wire.connect(scripted) as connection:
        connection.sendall(data.replace(b"Connection: close", b"Connection: keep-alive") + data)  # pipelined
        raw = b""
        while piece := connection.recv(65536):
            raw += piece
    assert raw.count(b'{"status": "ok"}') == 2


def test_a_chunked_body_is_read(scripted):
    body = json.dumps(PLAIN).encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:5], body[5:9], body[9:])) + b"0\r\n\r\n"
    head = (f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
            "Transfer-Encoding: chunked\r\n\r\n").encode()

    assert wire.exchange(scripted, head + chunks)[0] == 200


def test_a_post_without_length_is_411_srv1(scripted):
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    assert wire.exchange(scripted, head)[0] == 411


def test_headers_beyond_64_kib_are_431_srv1(scripted):
    request = wire.request_bytes("/health", b"", "GET", headers=["X-Long: " + "a" * 70_000])

    assert wire.exchange(scripted, request)[0] == 431


def test_a_body_beyond_32_mib_is_413_before_it_is_sent_srv1(scripted):
    head = (f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Length: {32 * 2**20 + 1}\r\n\r\n").encode()

    status, _, body = wire.exchange(scripted, head)

    assert status == 413 and b"request body too large" in body


def test_the_bound_of_bodies_can_be_set_and_has_each_surfaces_shape(locked):
    big = wire.user("x" * 11_000)
    openai_reply = wire.post(locked, CHAT, {"messages": big}, **with_key())
    anthropic_reply = wire.post(locked, "/v1/messages", {"messages": big, "max_tokens": 1}, **with_key())

    assert wire.openai_error(openai_reply, 413)["message"] == "request body too large"
    assert anthropic_reply.status_code == 413
    assert anthropic_reply.json()["error"]["type"] == "request_too_large"


@pytest.mark.parametrize("headers", [{}, with_key("wrong"), {"x-api-key": "wrong"}, {"Authorization": "first-key"},
                                     {"Authorization": "Bearer"}, with_key("first-key2"), with_key("first-ke")],
                         ids=repr)
def test_without_the_key_all_is_401_srv4(locked, headers):
    wire.openai_error(wire.post(locked, CHAT, PLAIN, **headers), 401, "invalid_api_key")
    assert wire.CLIENT.get(locked.url + "/v1/models", headers=headers).status_code == 401
    refused = wire.post(locked, "/v1/messages", {**PLAIN, "max_tokens": 1}, **headers)
    assert refused.status_code == 401 and refused.json()["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("headers", [with_key(), with_key("second-key"), {"x-api-key": "second-key"},
                                     {"Authorization": "bearer first-key"}], ids=repr)
def test_each_key_opens_srv4(locked, headers):
    assert wire.post(locked, CHAT, {**PLAIN, "model": "served"}, **headers).status_code == 200
    assert wire.CLIENT.get(locked.url + "/v1/models", headers=headers).status_code == 200


def test_health_needs_no_key_srv4(locked):
    assert wire.CLIENT.get(locked.url + "/health").status_code == 200
    assert wire.CLIENT.get(locked.url + "/v1/health").status_code == 200


def test_administration_needs_its_own_key_srv4(locked):
    refused = wire.post(locked, "/admin/cache/flush", {}, **with_key())
    assert wire.openai_error(refused, 403)["code"] == "admin_key_required"
    assert wire.post(locked, "/admin/cache/flush", {}).status_code in (401, 403)
    assert wire.post(locked, "/admin/cache/flush", {}, **with_key("admin-key")).status_code == 200


def test_administration_refuses_foreign_origins_srv5(locked):
    reply = wire.post(locked, "/admin/cache/flush", {}, Origin=FOREIGN, **with_key("admin-key"))

    assert reply.status_code == 403


def test_strict_names_are_404_srv3(locked):
    for path, fields in [(CHAT, PLAIN), ("/v1/completions", {"prompt": "a"}), ("/v1/responses", {"input": "[plain]"})]:
        wire.openai_error(wire.post(locked, path, {**fields, "model": "gpt-5"}, **with_key()), 404, "model_not_found")
    messages = wire.post(locked, "/v1/messages", {**PLAIN, "max_tokens": 1, "model": "claude"}, **with_key())
    assert messages.status_code == 404 and messages.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("name", ["served", "also", "default_model", None])
def test_the_names_of_the_model_are_served_and_echoed(locked, name):
    answer = wire.ok(locked, CHAT, PLAIN | ({"model": name} if name else {}), **with_key())

    assert answer["model"] == (name or "served")


def test_any_name_will_do_when_not_strict(scripted):
    assert wire.ok(scripted, CHAT, {**PLAIN, "model": "gpt-5"})["model"] == "gpt-5"


def test_the_client_raises_for_keys_and_names(locked):
    with openai.OpenAI(base_url=locked.url + "/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            client.models.list()
    with openai.OpenAI(base_url=locked.url + "/v1", api_key="first-key", max_retries=0) as client:
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="gpt-5", messages=PLAIN["messages"])


def preflight(server, origin, path=CHAT, asked="authorization,x-api-key,anthropic-version,content-type"):
    return wire.CLIENT.options(server.url + path, headers={
        "Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asked})


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses", "/v1/models"])
def test_a_preflight_needs_no_key_c35(locked, path):
    reply = preflight(locked, FOREIGN, path)

    assert reply.status_code == 204 and reply.content == b""
    assert reply.headers["access-control-allow-origin"] in ("*", FOREIGN)
    allowed = {h.strip().lower() for h in reply.headers["access-control-allow-headers"].split(",")}
    assert {"authorization", "x-api-key", "anthropic-version", "content-type"} <= allowed
    assert "POST" in reply.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in reply.headers


def test_errors_and_streams_carry_the_headers_too_c35(locked):
    refused = wire.post(locked, CHAT, PLAIN, Origin=FOREIGN)
    invalid = wire.post(locked, CHAT, {}, Origin=FOREIGN, **with_key())
    stream = wire.post(locked, CHAT, {**PLAIN, "stream": True}, Origin=FOREIGN, **with_key())

    assert (refused.status_code, invalid.status_code, stream.status_code) == (401, 400, 200)
    for reply in (refused, invalid, stream):
        assert reply.headers["access-control-allow-origin"] in ("*", FOREIGN)
        assert "access-control-allow-credentials" not in reply.headers


def test_by_default_loopback_origins_only_srv5(scripted):
    for origin in ("http://localhost:3000", "http://127.0.0.1:8000", "http://[::1]:5"):
        assert preflight(scripted, origin).headers["access-control-allow-origin"] == origin
    for origin in (FOREIGN, "http://localhost.evil.test", "null"):
        assert "access-control-allow-origin" not in preflight(scripted, origin).headers
        assert "access-control-allow-origin" not in wire.post(scripted, CHAT, {}, Origin=origin).headers


@pytest.mark.parametrize("host,status", [
    ("127.0.0.1", 200), ("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:8080", 200), ("127.0.0.1:99", 200),
    ("evil.test", 403), ("evil.test:80", 403), ("localhost.evil.test", 403), ("127.0.0.1.evil.test", 403),
    ("10.0.0.1", 403)])
def test_a_rebound_name_is_refused_srv5(scripted, host, status):
    for path, method, body in [("/health", "GET", b""), (CHAT, "POST", json.dumps(PLAIN).encode())]:
        assert wire.exchange(scripted, wire.request_bytes(path, body, method, host))[0] == status, path


def test_metrics_count_requests_srv60(scripted):
    wire.chat(scripted, "[plain]")
    text = wire.CLIENT.get(scripted.url + "/metrics").text

    assert 'kvasir_requests_total{endpoint="/v1/chat/completions",status="200"}' in text
    assert "kvasir_rows{" in text and "kvasir_kv_blocks{" in text


def test_tokens_go_there_and_back_srv17(demo):
    for text in ("Hello, Zürich 🙂", "", "  two  spaces\n"):
        tokens = wire.ok(demo, "/tokenize", {"content": text})["tokens"]
        assert wire.ok(demo, "/detokenize", {"tokens": tokens})["content"] == text


def test_embeddings_are_refused_by_name_srv14(scripted):
    error = wire.openai_error(wire.post(scripted, "/v1/embeddings", {"input": "x"}), 400)

    assert error["message"] == "this model does not produce embeddings"
