"""What the scripted model says, through the parsers, over the four APIs: calls, reasoning, stops inside markup."""
import json
import re

import pytest

import scripted_model
import wire
from scripted_model import SCRIPTS

WEATHER, TIME = ("get_weather", wire.WEATHER_ARGUMENTS), ("get_time", wire.TIME_ARGUMENTS)

# script: (reasoning, content, calls). Content around calls is compared trimmed.
EXPECTED = {
    "plain": ("", SCRIPTS["plain"], []),
    "count": ("", SCRIPTS["count"], []),
    "unicode": ("", SCRIPTS["unicode"], []),
    "tool": ("", "Let me look.", [WEATHER]),
    "two": ("", "", [WEATHER, TIME]),
    "unknown": ("", SCRIPTS["unknown"], []),
    "unfinished": ("", SCRIPTS["unfinished"], []),
    "after": ("", "That was it.", [TIME]),
    "think": ("Two and two.", "It is four.", []),
    "think_tool": ("Better ask.", "", [WEATHER]),
    "open": ("So deep a thought.", "Forty-two it is.", []),
    "unclosed": ("This never comes to a", "", []),
}


def ask(name):
    return wire.user(f"Please say [{name}]")


def openai_said(server, name, stream, **fields):
    body = {"messages": ask(name), "temperature": 0, "tools": wire.OPENAI_TOOLS, **fields}
    if not stream:
        choice = wire.ok(server, "/v1/chat/completions", body)["choices"][0]
        message = choice["message"]
        calls = message.get("tool_calls") or []
        return message.get("reasoning") or "", message["content"], calls, choice["finish_reason"]
    chunks = wire.chat_chunks(server, body)
    calls = [c for delta in wire.deltas(chunks) for c in delta.get("tool_calls") or []]
    return wire.joined(chunks, "reasoning"), wire.joined(chunks), calls, wire.finish_reasons(chunks)[0]


def anthropic_said(server, name, stream):
    body = {"messages": ask(name), "max_tokens": 200, "temperature": 0,
            "tools": [{"name": n, "input_schema": s} for n, s in wire.SCHEMAS.items()]}
    blocks = anthropic_blocks(server, body) if stream else wire.ok(server, "/v1/messages", body)["content"]
    of = lambda kind: [b for b in blocks if b["type"] == kind]
    calls = [(b["name"], b["input"]) for b in of("tool_use")]
    return "".join(b["thinking"] for b in of("thinking")), "".join(b["text"] for b in of("text")), calls


def anthropic_blocks(server, body):
    blocks = []
    for name, data in wire.sse(server, "/v1/messages", body):
        if name == "content_block_start":
            blocks.append({**data["content_block"], "json": ""})
        elif name == "content_block_delta":
            for field, key in [("text", "text"), ("thinking", "thinking"), ("partial_json", "json")]:
                if field in data["delta"]:
                    blocks[-1][key] += data["delta"][field]
    return [{**b, "input": json.loads(b["json"])} if b["type"] == "tool_use" else b for b in blocks]


def responses_said(server, name, stream):
    body = {"input": f"Please say [{name}]", "temperature": 0,
            "tools": [{"type": "function", "name": n, "parameters": s} for n, s in wire.SCHEMAS.items()]}
    if stream:
        name, data = wire.sse(server, "/v1/responses", body)[-1]
        assert name in ("response.completed", "response.incomplete"), data
        answer = data["response"]
    else:
        answer = wire.ok(server, "/v1/responses", body)
    items = lambda kind: [i for i in answer["output"] if i["type"] == kind]
    reasoning = "".join(p["text"] for i in items("reasoning") for p in [*(i.get("content") or []), *i["summary"]])
    text = "".join(p["text"] for i in items("message") for p in i["content"])
    return reasoning, text, [(i["name"], json.loads(i["arguments"])) for i in items("function_call")]


def ollama_said(server, name, stream):
    body = {"model": "m", "messages": ask(name), "options": {"temperature": 0}, "tools": wire.OPENAI_TOOLS,
            "stream": stream}
    reply = wire.post(server, "/api/chat", body)
    assert reply.status_code == 200, reply.text
    said = [json.loads(line)["message"] for line in reply.text.splitlines()]
    calls = [(c["function"]["name"], c["function"]["arguments"]) for m in said for c in m.get("tool_calls") or []]
    return "".join(m.get("thinking", "") for m in said), "".join(m["content"] for m in said), calls


def same_text(said, wanted):
    return said.strip() == wanted.strip()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", EXPECTED)
def test_openai_chat_says_the_script(scripted, name, stream):
    reasoning, content, calls = EXPECTED[name]

    said = openai_said(scripted, name, stream)

    assert same_text(said[0], reasoning) and same_text(said[1], content), said
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in said[2]] == calls
    assert all(re.fullmatch("call_[0-9A-Za-z]{24}", c["id"]) for c in said[2]), said[2]  # TXT-43
    assert len({c["id"] for c in said[2]}) == len(calls)
    assert said[3] == ("tool_calls" if calls else "stop")


@pytest.mark.parametrize("name", EXPECTED)
def test_openai_stream_and_whole_are_the_same_bytes(scripted, name):
    """SRV-35: concatenated deltas = the non-stream content."""
    whole, stream = openai_said(scripted, name, False), openai_said(scripted, name, True)

    assert whole[:2] == stream[:2] and whole[3] == stream[3]
    assert [c["function"] for c in whole[2]] == [c["function"] for c in stream[2]]


@pytest.mark.parametrize("said", [anthropic_said, responses_said, ollama_said])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", EXPECTED)
def test_the_other_apis_say_the_script(scripted, said, name, stream):
    reasoning, content, calls = EXPECTED[name]

    got = said(scripted, name, stream)

    assert same_text(got[0], reasoning) and same_text(got[1], content) and got[2] == calls, got


def test_every_call_delta_has_its_index_id_type_and_name_c31(scripted):
    calls = openai_said(scripted, "two", True)[2]

    assert [c["index"] for c in calls] == [0, 1]  # one delta a call, complete (SRV-32)
    assert all(c["type"] == "function" and c["id"] and c["function"]["name"] for c in calls)


def test_parallel_calls_can_be_switched_off(scripted):
    """TXT-44: it stops after the first."""
    for stream in (False, True):
        said = openai_said(scripted, "two", stream, parallel_tool_calls=False)
        assert [c["function"]["name"] for c in said[2]] == ["get_weather"] and said[3] == "tool_calls"


@pytest.mark.parametrize("fields", [{"tool_choice": "none"}, {"tools": []}], ids=["none", "no tools"])
def test_without_tools_markup_is_text_txt44(scripted, fields):
    for stream in (False, True):
        said = openai_said(scripted, "tool", stream, **fields)
        assert said[1] == SCRIPTS["tool"] and said[2] == [] and said[3] == "stop"


@pytest.mark.parametrize("stop", ["<", "tool_call", "Zür", '"arguments"', "</tool", "ook.\n<t"])
def test_a_stop_inside_a_call_flushes_what_the_parser_held_c32(scripted, stop):
    text = SCRIPTS["tool"]

    for stream in (False, True):
        said = openai_said(scripted, "tool", stream, stop=[stop])
        assert said[1:] == (text[:text.index(stop)], [], "stop"), said


@pytest.mark.parametrize("stop", ["hree-fo", "two", "wo ", "r", " six", "one two three-four five six"])
def test_a_stop_string_across_tokens_cuts_exactly_c01(scripted, stop):
    text = SCRIPTS["count"]

    for stream in (False, True):
        said = openai_said(scripted, "count", stream, stop=[stop])
        assert said[1] == text[:text.index(stop)] and said[3] == "stop", said


def test_no_strict_part_of_the_text_escapes_as_a_stop_c01(scripted):
    """Every part of a few letters, wherever its token ends."""
    text = "one two three"

    for length in (1, 3, 6):
        for at in range(0, len(text) - length, 2):
            stop = text[at:at + length]
            said = openai_said(scripted, "count", True, stop=stop)
            assert said[1] == text[:text.index(stop)], stop


def test_a_stop_that_only_begins_holds_nothing_back_at_the_end(scripted):
    said = openai_said(scripted, "count", True, stop=["five sixty", "six!"])

    assert said[1] == SCRIPTS["count"]


def test_the_earliest_end_wins_then_the_longest_txt60(scripted):
    said = openai_said(scripted, "count", False, stop=["three-four five", "e-four", "three-four"])

    assert said[1] == "one two "


def test_stop_strings_do_not_match_inside_reasoning_txt60(scripted):
    for stream in (False, True):
        said = openai_said(scripted, "think", stream, stop=["two", "four"])
        assert same_text(said[0], "Two and two.") and said[1] == "It is ", said


def test_reasoning_effort_none_closes_the_block_txt52(scripted):
    body = {"messages": ask("plain"), "temperature": 0}

    off = wire.ok(scripted, "/apply-template", {**body, "reasoning_effort": "none"})["prompt"]
    on = wire.ok(scripted, "/apply-template", {**body, "reasoning_effort": "high"})["prompt"]

    assert "<think>\n\n</think>" in off and "<think>" not in on


def test_a_tool_round_trip_reaches_the_answer(scripted):
    """C11: content null beside calls; arguments as the JSON string that came."""
    first = wire.chat(scripted, "Please say [tool]", tools=wire.OPENAI_TOOLS, max_tokens=100)["choices"][0]["message"]
    messages = [*ask("tool"), {**first, "content": None},
                {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "sunny"}]

    answer = wire.chat(scripted, messages, tools=wire.OPENAI_TOOLS)["choices"][0]

    assert answer["message"]["content"] == SCRIPTS["answer"] and answer["finish_reason"] == "stop"


def test_a_missing_content_is_as_an_empty_one_c11(scripted):
    call = {"id": "a", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    ends = [{"role": "assistant", "tool_calls": [call]}, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "assistant", "content": "", "tool_calls": [call]}]

    counts = {wire.chat(scripted, [*ask("x"), end, {"role": "tool", "tool_call_id": "a", "content": "4"}])
              ["usage"]["prompt_tokens"] for end in ends}

    assert len(counts) == 1


def test_logprobs_of_calls_and_reasoning_cover_every_token_samp30(scripted):
    choice = wire.chat(scripted, "Please say [think_tool]", tools=wire.OPENAI_TOOLS, max_tokens=100, logprobs=True)
    entries = choice["choices"][0]["logprobs"]["content"]

    assert bytes(b for e in entries for b in e["bytes"]).decode() == SCRIPTS["think_tool"]
    assert len(entries) == choice["usage"]["completion_tokens"]


@pytest.mark.parametrize("form", ["reasoning_content", "none"])
def test_the_form_of_reasoning_can_be_chosen_txt50(start, script_folder, form):
    with start(script_folder, "--reasoning-format", form) as server:
        body = {"messages": ask("think"), "temperature": 0}
        message = wire.ok(server, "/v1/chat/completions", body)["choices"][0]["message"]
        chunks = wire.chat_chunks(server, body)

    if form == "none":
        assert message["content"] == wire.joined(chunks) == SCRIPTS["think"]
    else:
        assert same_text(message[form], "Two and two.") and message[form] == wire.joined(chunks, form)
        assert message["content"] == wire.joined(chunks) == "It is four."
    assert "reasoning" not in message and all("reasoning" not in delta for delta in wire.deltas(chunks))


def test_reasoning_tokens_are_counted(scripted):
    usage = wire.chat(scripted, "Please say [unclosed]")["usage"]

    assert usage["completion_tokens_details"]["reasoning_tokens"] > 0
    assert wire.chat(scripted, "Please say [plain]")["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_the_loop_of_the_model_ends_at_the_limit(scripted):
    choice = wire.chat(scripted, "Please say [loop]", max_tokens=40)

    assert choice["choices"][0]["finish_reason"] == "length" and choice["usage"]["completion_tokens"] == 40
    assert (scripted_model.LOOP * 20).startswith(choice["choices"][0]["message"]["content"])
