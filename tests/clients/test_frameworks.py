"""litellm through its openai, anthropic and ollama providers, and langchain-openai."""
import json

import litellm
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

import wire
from scripted_model import SCRIPTS

litellm.telemetry = False
litellm.drop_params = True

PROVIDERS = {"openai": "/v1", "anthropic": "", "ollama_chat": ""}


def ask(server, provider, text, **fields):
    return litellm.completion(
        model=f"{provider}/{fields.pop('model', 'scripted')}", api_base=server.url + PROVIDERS.get(provider, ""),
        api_key="any", messages=wire.user(text) if isinstance(text, str) else text, max_tokens=100, num_retries=0,
        **fields)


def arguments_of(message):
    return [json.loads(call.function.arguments) for call in message.tool_calls or []]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_litellm_streams_what_it_gets_whole(scripted, provider):
    whole = ask(scripted, provider, "[unicode]")
    stream = list(ask(scripted, provider, "[unicode]", stream=True))

    assert whole.choices[0].message.content == SCRIPTS["unicode"] and whole.choices[0].finish_reason == "stop"
    assert whole.usage.prompt_tokens > 0 and whole.usage.completion_tokens > 0
    assert "".join(c.choices[0].delta.content or "" for c in stream if c.choices) == SCRIPTS["unicode"]
    assert [c.choices[0].finish_reason for c in stream if c.choices and c.choices[0].finish_reason] == ["stop"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_litellm_carries_calls_there_and_back(scripted, provider):
    said = ask(scripted, provider, "[two]", tools=wire.OPENAI_TOOLS).choices[0]
    assert arguments_of(said.message) == [wire.WEATHER_ARGUMENTS, wire.TIME_ARGUMENTS]
    assert said.finish_reason == "tool_calls"

    history = [*wire.user("[two]"), said.message.model_dump(exclude_none=True)]
    history += [{"role": "tool", "tool_call_id": c.id, "name": c.function.name, "content": "fine"}
                for c in said.message.tool_calls]
    answer = ask(scripted, provider, history, tools=wire.OPENAI_TOOLS)
    assert answer.choices[0].message.content == SCRIPTS["answer"]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_litellm_builds_streamed_calls(scripted, provider):
    chunks = list(ask(scripted, provider, "[two]", tools=wire.OPENAI_TOOLS, stream=True))

    message = litellm.stream_chunk_builder(chunks).choices[0].message
    assert arguments_of(message) == [wire.WEATHER_ARGUMENTS, wire.TIME_ARGUMENTS]


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_litellm_stops_at_strings(scripted, provider):
    said = ask(scripted, provider, "[count]", stop=["hree-fo"]).choices[0]

    assert said.message.content == "one two t" and said.finish_reason == "stop"


def test_litellm_generates_through_ollama(scripted):
    """This provider writes its own prompt, for /api/generate."""
    assert ask(scripted, "ollama", "[plain]").choices[0].message.content == SCRIPTS["plain"]


def test_litellm_maps_errors(scripted):
    with pytest.raises(litellm.BadRequestError, match="roles must alternate"):
        ask(scripted, "openai", wire.user("x") + wire.user("y"))


@pytest.fixture(scope="module")
def chat(scripted):
    return ChatOpenAI(base_url=scripted.url + "/v1", api_key="any", model="scripted", max_tokens=100, max_retries=0)


def test_langchain_invokes_and_streams(chat):
    whole = chat.invoke("[unicode]")
    stream = list(chat.stream("[unicode]"))

    assert whole.content == "".join(c.content for c in stream) == SCRIPTS["unicode"]
    assert whole.usage_metadata["total_tokens"] > 0 and whole.response_metadata["finish_reason"] == "stop"


def test_langchain_streams_with_usage(scripted):
    chat = ChatOpenAI(base_url=scripted.url + "/v1", api_key="any", model="scripted", stream_usage=True)
    total = None
    for chunk in chat.stream("[plain]"):
        total = chunk if total is None else total + chunk

    assert total.content == SCRIPTS["plain"] and total.usage_metadata["output_tokens"] > 0


def test_langchain_binds_tools(chat):
    bound = chat.bind_tools(wire.OPENAI_TOOLS)
    message = bound.invoke("[two]")

    assert [c["args"] for c in message.tool_calls] == [wire.WEATHER_ARGUMENTS, wire.TIME_ARGUMENTS]
    results = [ToolMessage(content="fine", tool_call_id=c["id"]) for c in message.tool_calls]
    assert bound.invoke([HumanMessage("[two]"), message, *results]).content == SCRIPTS["answer"]
    total = None
    for chunk in bound.stream("[two]"):
        total = chunk if total is None else total + chunk
    assert [c["args"] for c in total.tool_calls] == [wire.WEATHER_ARGUMENTS, wire.TIME_ARGUMENTS]


def test_langchain_speaks_responses_too(scripted):
    chat = ChatOpenAI(base_url=scripted.url + "/v1", api_key="any", model="scripted", use_responses_api=True)

    assert chat.invoke("[plain]").text == SCRIPTS["plain"]


def test_langchain_answers_with_the_demo_model(demo):
    chat = ChatOpenAI(base_url=demo.url + "/v1", api_key="any", model="any", temperature=0, max_tokens=5)

    streamed = "".join(c.content for c in chat.stream("Say hello to Ann."))
    assert chat.invoke("Say hello to Ann.").content == streamed != ""
