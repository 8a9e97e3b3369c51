"""SRV-2 and the table of SAMP-41 over the wire: texts byte for byte."""
import json

import pytest

import wire

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
NUMBER = "('float', 'int')"
WRONG_FOR_NUMBER = ["1", True, [], {}]
WRONG_FOR_INT = ["1", True, 1.5, [], {}]

COUNTS = ["max_tokens", "max_completion_tokens", "top_k", "num_draft_tokens", "repetition_context_size",
          "presence_context_size", "frequency_context_size"]
AT_LEAST_0 = ["temperature", "repetition_penalty"]
UNIT = ["top_p", "min_p", "xtc_probability", "xtc_threshold"]
ANY_NUMBER = ["presence_penalty", "frequency_penalty"]

TABLE = [
    *[(CHAT, f, v, f"{f} must be of type bool") for f in ("stream", "logprobs") for v in ("true", 1, [])],
    *[(CHAT, f, v, f"{f} must be of type int") for f in COUNTS for v in WRONG_FOR_INT],
    *[(CHAT, f, -1, f"{f} must be at least 0") for f in COUNTS],
    *[(CHAT, f, v, f"{f} must be of type {NUMBER}") for f in AT_LEAST_0 + UNIT + ANY_NUMBER for v in WRONG_FOR_NUMBER],
    *[(CHAT, f, v, f"{f} must be at least 0") for f in AT_LEAST_0 + UNIT for v in (-0.5, -1)],
    *[(CHAT, f, v, f"{f} must be at most 1") for f in UNIT for v in (1.5, 2)],
    *[(CHAT, "top_logprobs", v, "top_logprobs must be of type int") for v in WRONG_FOR_INT],
    (CHAT, "top_logprobs", 21, "top_logprobs must be at most 20"),
    (CHAT, "top_logprobs", -2, "top_logprobs must be at least 0"),
    (COMPLETIONS, "logprobs", 21, "logprobs must be at most 20"),
    (COMPLETIONS, "logprobs", -1, "logprobs must be at least 0"),
    *[(CHAT, "seed", v, "seed must be of type int") for v in ("1", 1.5, True, [])],
    *[(path, "logit_bias", v, "logit_bias must be a dict of int to float") for path in (CHAT, COMPLETIONS)
      for v in ([], "x", 1, {"a": 1}, {"1": "x"}, {"1": True}, {"1": None})],
    (CHAT, "logit_bias", {"100000": 1}, "logit_bias token id 100000 is out of range"),
    (CHAT, "logit_bias", {"-1": 1}, "logit_bias token id -1 is out of range"),
]


def body_of(path, **fields):
    return {"messages": wire.user("[plain]"), **fields} if path == CHAT else {"prompt": "a", "max_tokens": 1, **fields}


@pytest.mark.parametrize("path,field,value,text", TABLE, ids=lambda v: repr(v) if not isinstance(v, str) else v[:40])
def test_the_table_of_samp41(scripted, path, field, value, text):
    error = wire.openai_error(wire.post(scripted, path, body_of(path, **{field: value})), 400, "invalid_request")

    assert error["message"] == text and error["param"] == field and error["type"] == "invalid_request_error"


@pytest.mark.parametrize("fields", [
    {"unknown": 1}, {"seed": None}, {"logit_bias": None}, {"temperature": 0}, {"temperature": 1, "top_p": 1},
    {"seed": 2**63 - 1}, {"seed": -2**63}, {"top_logprobs": -1}, {"logprobs": True,
                                                                                        "top_logprobs": 20},
    {"logit_bias": {}}, {"top_p": 0, "min_p": 0, "top_k": 0}, {"presence_penalty": -3, "frequency_penalty": 5.5},
    {"stop": None}, {"tools": None}, {"user": "me"}, {"stop": "Hello"}, {"stop": ["a"] * 16},
], ids=repr)
def test_what_is_allowed_is_allowed(scripted, fields):
    assert wire.post(scripted, CHAT, body_of(CHAT, **fields)).status_code == 200


@pytest.mark.parametrize("stop", ["", [""], ["a"] * 17, "x" * 1025, 5, [5], {"a": 1}], ids=lambda v: repr(v)[:20])
def test_bounds_of_stop_txt60(scripted, stop):
    for path in (CHAT, COMPLETIONS):
        assert "stop" in wire.openai_error(wire.post(scripted, path, body_of(path, stop=stop)), 400)["message"]


def test_max_completion_tokens_wins(scripted):
    answer = wire.chat(scripted, "[loop]", max_tokens=3, max_completion_tokens=5)

    assert answer["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("messages", [[], None, "x", {}, 5])
def test_messages_must_be_a_list_with_something_in_it(scripted, messages):
    error = wire.openai_error(wire.post(scripted, CHAT, {"messages": messages}), 400, "invalid_request")

    assert error["message"] == "messages must be a non-empty array"


@pytest.mark.parametrize("message", [
    5, "x", {}, {"role": 5, "content": "x"}, {"content": "x"}, {"role": "user", "content": 5},
    {"role": "user", "content": [{"type": "text"}]}, {"role": "user", "content": [{"type": "video", "x": 1}]},
    {"role": "user", "content": ["x"]}, {"role": "assistant", "content": "x", "tool_calls": 5},
    {"role": "assistant", "content": "x", "tool_calls": [{"function": 5}]}], ids=repr)
def test_odd_messages_are_refused(scripted, message):
    wire.openai_error(wire.post(scripted, CHAT, {"messages": [message]}), 400, "invalid_request")


def test_an_image_is_refused_by_a_model_of_text(scripted):
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

    wire.openai_error(wire.post(scripted, CHAT, {"messages": wire.user([part])}), 400)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/v1/responses", "/tokenize"])
@pytest.mark.parametrize("body", [b"{", b"", b"{\"a\":1,}", b"nul", b"{\"a\":\"\\ud800\"", b"[1", b"{'a':1}",
                                  b'{"a":1} x', b'{"a":NaN}'], ids=repr)
def test_malformed_json_is_named_srv2(scripted, path, body):
    status, _, answer = wire.exchange(scripted, wire.request_bytes(path, body))

    assert status == 400, answer
    assert b'"message":"Invalid JSON in request body: ' in answer.replace(b'": "', b'":"'), answer


@pytest.mark.parametrize("body", [b"[]", b"5", b'"x"', b"null", b"true"])
def test_a_body_must_be_an_object_srv2(scripted, body):
    for path in (CHAT, COMPLETIONS, "/v1/responses"):
        status, _, answer = wire.exchange(scripted, wire.request_bytes(path, body))
        assert status == 400 and b"Request should be a JSON object" in answer


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens", "/api/chat", CHAT])
def test_malformed_json_has_the_shape_of_its_surface(scripted, path):
    for body in (b"{", b"[]"):
        status, _, answer = wire.exchange(scripted, wire.request_bytes(path, body))
        assert status == 400
        answer = json.loads(answer)
        message = answer["error"] if path == "/api/chat" else answer["error"]["message"]
        assert message.startswith("Invalid JSON in request body: ") or message == "Request should be a JSON object"
        assert (answer.get("type") == "error") == path.startswith("/v1/messages")


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"], ids=repr)
def test_invalid_utf8_is_400_srv1(scripted, bad):
    body = b'{"messages":[{"role":"user","content":"a' + bad + b'b"}]}'

    assert wire.exchange(scripted, wire.request_bytes(CHAT, body))[0] == 400


def test_depth_is_at_most_128_srv1(scripted):
    nested = lambda n: b'{"messages":[{"role":"user","content":"[plain]"}],"x":' + b"[" * n + b"]" * n + b"}"

    assert wire.exchange(scripted, wire.request_bytes(CHAT, nested(127)))[0] == 200  # with the object: 128
    for n in (128, 129, 100_000):
        status, _, body = wire.exchange(scripted, wire.request_bytes(CHAT, nested(n)))
        assert status == 400 and b"Invalid JSON in request body: " in body


def test_the_last_of_two_keys_wins_srv1(scripted):
    body = b'{"max_tokens":"x","messages":[{"role":"user","content":"[loop]"}],"max_tokens":3}'

    status, _, answer = wire.exchange(scripted, wire.request_bytes(CHAT, body))

    assert status == 200 and b'"completion_tokens":3' in answer.replace(b": ", b":")
