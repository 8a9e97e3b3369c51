"""/v1/messages with the anthropic client and on the wire."""
import json
import random

import anthropic
import pytest

import wire
from scripted_model import SCRIPTS

TOOLS = [{"name": name, "description": "A tool.", "input_schema": schema} for name, schema in wire.SCHEMAS.items()]


@pytest.fixture(scope="module")
def client(scripted):
    with anthropic.Anthropic(base_url=scripted.url, api_key="any") as made:
        yield made


def create(client, content, **fields):
    messages = wire.user(content) if isinstance(content, str) else content
    return client.messages.create(**{"model": "any", "messages": messages, "max_tokens": 100, **fields})


def events_of(server, content, **fields):
    return wire.sse(server, "/v1/messages", {"messages": wire.user(content), "max_tokens": 100, **fields})


def test_a_message_has_its_shape_srv40(client):
    message = create(client, "[plain]")

    assert message.id.startswith("msg_") and message.type == "message" and message.role == "assistant"
    assert message.content[0].text == SCRIPTS["plain"]
    assert message.stop_reason == "end_turn" and message.stop_sequence is None
    assert message.usage.output_tokens > 0 and message.usage.cache_read_input_tokens is not None


def test_the_stop_reasons_are_anthropics(client):
    cut = create(client, "[loop]", max_tokens=5)
    stopped = create(client, "[count]", stop_sequences=["nope", "hree-fo"])
    called = create(client, "[two]", tools=TOOLS)

    assert cut.stop_reason == "max_tokens" and cut.usage.output_tokens == 5
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == "hree-fo"
    assert stopped.content[0].text == "one two t"
    assert called.stop_reason == "tool_use"
    assert [b.input for b in called.content if b.type == "tool_use"] == [wire.WEATHER_ARGUMENTS, wire.TIME_ARGUMENTS]


def check_order(events):
    """message_start, ping, whole blocks numbered from 0, message_delta, message_stop (SRV-41)."""
    names = [name for name, _ in events]
    assert names[:2] == ["message_start", "ping"] and names[-2:] == ["message_delta", "message_stop"]
    assert all(data["type"] == name for name, data in events)
    index, is_open = -1, False
    for name, data in events[2:-2]:
        if name == "content_block_start":
            assert not is_open
            index, is_open = index + 1, True
        elif name == "content_block_stop":
            assert is_open
            is_open = False
        else:
            assert name == "content_block_delta" and is_open
        assert data["index"] == index
    assert not is_open
    return events


@pytest.mark.parametrize("name", SCRIPTS)
def test_events_come_in_order_srv41(scripted, name):
    check_order(events_of(scripted, f"[{name}]", tools=TOOLS))


def test_a_stream_of_thinking_and_a_call(scripted):
    events = check_order(events_of(scripted, "[think_tool]", tools=TOOLS,
                                   thinking={"type": "enabled", "budget_tokens": 1024}))

    starts = [data["content_block"] for name, data in events if name == "content_block_start"]
    assert starts[0]["type"] == "thinking" and starts[-1]["type"] == "tool_use" and starts[-1]["input"] == {}
    of_thinking = [data["delta"]["type"] for name, data in events
                   if name == "content_block_delta" and data["index"] == 0]
    assert of_thinking[-1] == "signature_delta" and set(of_thinking[:-1]) == {"thinking_delta"}
    pieces = [data["delta"]["partial_json"] for name, data in events
              if name == "content_block_delta" and data["delta"]["type"] == "input_json_delta"]
    assert json.loads("".join(pieces)) == wire.WEATHER_ARGUMENTS
    assert events[-2][1]["delta"]["stop_reason"] == "tool_use" and events[-2][1]["usage"]["output_tokens"] > 0
    assert events[0][1]["message"]["content"] == [] and events[0][1]["message"]["usage"]["input_tokens"] > 0


def test_the_stream_helper_of_the_client_builds_the_message(client):
    with client.messages.stream(model="any", max_tokens=100, messages=wire.user("[tool]"), tools=TOOLS) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()

    assert text.strip() == "Let me look." and final.stop_reason == "tool_use"
    assert final.content[-1].input == wire.WEATHER_ARGUMENTS


def test_thinking_and_tool_use_go_round(client):
    """The blocks come back as they went, with their signature."""
    first = create(client, "[think_tool]", tools=TOOLS)
    assert [b.type for b in first.content] == ["thinking", "tool_use"] and first.content[0].signature
    result = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": [{"type": "text", "text": "sun"}]}
    messages = [*wire.user("[think_tool]"), {"role": "assistant", "content": [b.model_dump() for b in first.content]},
                {"role": "user", "content": [result]}]

    answer = create(client, messages, tools=TOOLS)

    assert answer.content[0].text == SCRIPTS["answer"]
    assert client.messages.count_tokens(model="any", messages=messages, tools=TOOLS).input_tokens == total(answer.usage)


def total(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


@pytest.mark.parametrize("fields", [
    {"messages": wire.user("[plain] one")},
    {"messages": wire.user("[plain]"), "system": "Be brief."},
    {"messages": wire.user([{"type": "text", "text": "[pl"}, {"type": "text", "text": "ain]"}]), "tools": TOOLS},
], ids=["plain", "system", "parts and tools"])
def test_count_tokens_is_the_input_of_usage_c34(client, fields):
    counted = client.messages.count_tokens(model="any", **fields).input_tokens

    for _ in range(2):  # cold and cached
        assert total(client.messages.create(model="any", max_tokens=4, **fields).usage) == counted


def test_system_strings_and_blocks_render_alike_c34(client):
    count = lambda system: client.messages.count_tokens(
        model="any", messages=wire.user("x"), system=system).input_tokens
    block = lambda text: {"type": "text", "text": text}

    assert count("Be brief.") == count([block("Be brief.")])
    assert count("Be brief.") == count([block("x-anthropic-billing-header: v=1; cch=abc;"), block("Be brief.")])
    assert count([block("Be brief."), block("x-anthropic-billing-header: no")]) > count("Be brief.")


def test_a_changing_billing_block_keeps_the_cached_prefix_c34(client):
    def ask():
        system = [{"type": "text", "text": f"x-anthropic-billing-header: v=1; cch={random.random()};"},
                  {"type": "text", "text": "These are the rules. " * 20, "cache_control": {"type": "ephemeral"}}]
        return create(client, "[plain]", system=system).usage

    cold, warm = ask(), ask()

    assert warm.cache_read_input_tokens >= 300 and total(cold) == total(warm)
    assert warm.input_tokens < cold.input_tokens + cold.cache_creation_input_tokens


@pytest.mark.parametrize("body", [
    {"messages": wire.user("x")}, {"messages": [], "max_tokens": 5}, {"max_tokens": 5},
    {"messages": wire.user("x"), "max_tokens": "5"}, {"messages": wire.user("x"), "max_tokens": 5, "temperature": -1},
    {"messages": [{"role": "critic", "content": "x"}], "max_tokens": 5}], ids=repr)
def test_errors_have_anthropics_shape_srv3(scripted, body):
    reply = wire.post(scripted, "/v1/messages", body)

    assert reply.status_code == 400, reply.text
    answer = reply.json()
    assert answer["type"] == "error" and answer["error"]["type"] == "invalid_request_error"
    assert set(answer["error"]) == {"type", "message"} and answer["error"]["message"]


def test_the_client_raises_its_own_errors(client):
    with pytest.raises(anthropic.BadRequestError, match="messages"):
        create(client, [])


def test_tool_choice_none_leaves_markup_as_text(client):
    message = create(client, "[tool]", tools=TOOLS, tool_choice={"type": "none"})

    assert [b.type for b in message.content] == ["text"] and message.content[0].text == SCRIPTS["tool"]


def test_the_demo_model_streams_what_it_says_whole(demo):
    body = {"messages": wire.user("Say hello to Ann."), "max_tokens": 6, "temperature": 0}
    whole = wire.ok(demo, "/v1/messages", body)
    events = check_order(wire.sse(demo, "/v1/messages", body))

    text = "".join(d["delta"]["text"] for n, d in events if n == "content_block_delta")
    assert text == whole["content"][0]["text"] != ""
