"""Ollama's API with its own client."""
import ollama
import pytest

import wire
from scripted_model import SCRIPTS, trigger


@pytest.fixture(scope="module")
def client(scripted):
    return ollama.Client(host=scripted.url)


def test_tags_show_and_version(client, scripted):
    model = client.list().models[0]
    shown = client.show(model.model)

    assert model.size > 0 and len(model.digest) == 64
    assert shown.template and shown.details.family == "llama"
    assert {"completion", "tools"} <= set(shown.capabilities)
    assert wire.get_json(scripted, "/api/version")["version"]


@pytest.mark.parametrize("name", ["plain", "unicode", "count"])
def test_chat_streams_what_it_says_whole(client, name):
    whole = client.chat(model="any", messages=wire.user(f"[{name}]"))
    parts = list(client.chat(model="any", messages=wire.user(f"[{name}]"), stream=True))

    assert "".join(p.message.content for p in parts) == whole.message.content == SCRIPTS[name]
    assert [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
    for last in (whole, parts[-1]):
        assert last.done_reason == "stop" and last.eval_count > 0 and last.prompt_eval_count > 0
        assert last.total_duration >= last.eval_duration > 0
    assert whole.eval_count == parts[-1].eval_count and whole.prompt_eval_count == parts[-1].prompt_eval_count


def test_generate_renders_the_template_unless_raw(client):
    whole = client.generate(model="any", prompt="[plain]")
    parts = list(client.generate(model="any", prompt="[plain]", stream=True))
    raw = client.generate(model="any", prompt="x" + trigger("count"), raw=True)

    assert whole.response == SCRIPTS["plain"] == "".join(p.response for p in parts)
    assert parts[-1].done and raw.response == SCRIPTS["count"]


def test_options_limit_and_stop(client):
    cut = client.chat(model="any", messages=wire.user("[loop]"), options={"num_predict": 7})
    stopped = client.chat(model="any", messages=wire.user("[count]"), options={"stop": ["hree-fo"]})

    assert cut.done_reason == "length" and cut.eval_count == 7
    assert stopped.message.content == "one two t" and stopped.done_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_calls_go_round(client, stream):
    said = client.chat(model="any", messages=wire.user("[two]"), tools=wire.OPENAI_TOOLS, stream=stream)
    messages = [part.message for part in (said if stream else [said])]
    calls = [c for m in messages for c in m.tool_calls or []]

    assert [dict(c.function.arguments) for c in calls] == [wire.WEATHER_ARGUMENTS, wire.TIME_ARGUMENTS]
    history = [*wire.user("[two]"), {"role": "assistant", "content": "", "tool_calls": calls},
               {"role": "tool", "tool_name": "get_weather", "content": "sunny"},
               {"role": "tool", "tool_name": "get_time", "content": "noon"}]
    assert client.chat(model="any", messages=history, tools=wire.OPENAI_TOOLS).message.content == SCRIPTS["answer"]


def test_thinking_is_a_field_of_its_own(client):
    said = client.chat(model="any", messages=wire.user("[think]"), think=True)

    assert said.message.thinking.strip() == "Two and two." and said.message.content == "It is four."


def test_errors_are_a_line_of_their_own(client, scripted):
    reply = wire.post(scripted, "/api/chat", {"model": "any", "messages": "x"})

    assert reply.status_code == 400 and set(reply.json()) == {"error"}
    with pytest.raises(ollama.ResponseError) as raised:
        client.chat(model="any", messages=wire.user("x") * 2)
    assert raised.value.status_code == 400 and "roles must alternate" in raised.value.error


def test_the_demo_model_answers(demo):
    client = ollama.Client(host=demo.url)
    ask = lambda **more: client.chat(model="any", messages=wire.user("Say hello to Ann."),
                                     options={"temperature": 0, "num_predict": 5}, **more)

    assert ask().message.content == "".join(p.message.content for p in ask(stream=True)) != ""
    assert client.list().models[0].details.quantization_level
