"""/v1/responses with the openai client and on the wire."""
import json

import openai
import pytest

import wire
from scripted_model import SCRIPTS

TOOLS = [{"type": "function", "name": name, "description": "A tool.", "parameters": schema}
         for name, schema in wire.SCHEMAS.items()]
END = "response.completed"


@pytest.fixture(scope="module")
def client(scripted):
    with openai.OpenAI(base_url=scripted.url + "/v1", api_key="any") as made:
        yield made


def create(client, text, **fields):
    return client.responses.create(**{"model": "any", "input": text, **fields})


def events_of(server, text, **fields):
    """The events, after checking what holds for all streams (SRV-42)."""
    events = wire.sse(server, "/v1/responses", {"input": text, **fields})
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert all(data["type"] == name for name, data in events)
    names = [name for name, _ in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] in (END, "response.incomplete")
    assert events[0][1]["response"]["id"] == events[-1][1]["response"]["id"]
    assert names.count("response.output_item.added") == names.count("response.output_item.done")
    return events


def test_an_answer_is_read_by_the_client(client):
    answer = create(client, "[plain]")

    assert answer.output_text == SCRIPTS["plain"] and answer.status == "completed"
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def test_a_text_stream_is_one_item_of_one_part(scripted):
    events = events_of(scripted, "[unicode]")

    names = [name.removeprefix("response.") for name, _ in events]
    kept = [n for i, n in enumerate(names) if n != "output_text.delta" or names[i - 1] != n]
    assert kept == ["created", "in_progress", "output_item.added", "content_part.added", "output_text.delta",
                    "output_text.done", "content_part.done", "output_item.done", "completed"]
    deltas = "".join(d["delta"] for n, d in events if n == "response.output_text.delta")
    done = next(d for n, d in events if n == "response.output_text.done")
    assert deltas == done["text"] == SCRIPTS["unicode"]
    assert events[-1][1]["response"]["output"][0]["content"][0]["text"] == deltas


@pytest.mark.parametrize("name", SCRIPTS)
def test_streamed_items_are_the_final_outputs(scripted, name):
    events = events_of(scripted, f"[{name}]", tools=TOOLS)

    done = [d["item"] for n, d in events if n == "response.output_item.done"]
    assert done == events[-1][1]["response"]["output"]
    assert [d["output_index"] for n, d in events if n == "response.output_item.done"] == list(range(len(done)))


def test_arguments_stream_and_are_done(scripted):
    events = events_of(scripted, "[two]", tools=TOOLS)

    for index, wanted in enumerate([wire.WEATHER_ARGUMENTS, wire.TIME_ARGUMENTS]):
        of = lambda kind: [d for n, d in events
                           if n == f"response.function_call_arguments.{kind}" and d["output_index"] == index]
        assert json.loads("".join(d["delta"] for d in of("delta"))) == wanted
        assert [json.loads(d["arguments"]) for d in of("done")] == [wanted]


def test_chaining_works_the_moment_the_stream_completes_c33(scripted):
    body = {"input": "[plain] first", "store": True, "stream": True}
    alone = wire.ok(scripted, "/v1/responses", {"input": "[count] second"})["usage"]["input_tokens"]
    with wire.CLIENT.stream("POST", scripted.url + "/v1/responses", json=body) as reply:
        ids = []
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            data = json.loads(line[6:])
            if data["type"] in ("response.created", END):
                ids.append(data["response"]["id"])
            if data["type"] == END:
                # The stream is still open here.
                chained = wire.ok(scripted, "/v1/responses", {"input": "[count] second",
                                                              "previous_response_id": ids[0]})
    assert ids[0] == ids[1]
    history = len("[plain] first".encode()) + len(SCRIPTS["plain"].encode())
    assert chained["usage"]["input_tokens"] >= alone + history
    assert chained["previous_response_id"] == ids[0]
    assert chained["output"][0]["content"][0]["text"] == SCRIPTS["count"]


def test_the_store_answers_and_forgets(client):
    made = create(client, "[plain]", store=True)

    assert client.responses.retrieve(made.id).output_text == SCRIPTS["plain"]
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_unknown_and_unstored_ids_are_404_c33(scripted):
    unstored = wire.ok(scripted, "/v1/responses", {"input": "[plain]", "store": False})["id"]

    for id in ("resp_unknown", unstored):
        wire.openai_error(wire.post(scripted, "/v1/responses", {"input": "x", "previous_response_id": id}), 404,
                          "response_not_found")
        wire.openai_error(wire.CLIENT.get(f"{scripted.url}/v1/responses/{id}"), 404, "response_not_found")
        wire.openai_error(wire.CLIENT.delete(f"{scripted.url}/v1/responses/{id}"), 404, "response_not_found")


def test_a_call_goes_round_by_history_and_by_chain(client):
    first = create(client, "[tool]", tools=TOOLS)
    call = next(i for i in first.output if i.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}

    chained = create(client, [result], previous_response_id=first.id, tools=TOOLS)
    history = create(client, [{"role": "user", "content": "[tool]"}, *[i.model_dump() for i in first.output], result],
                     tools=TOOLS)

    assert chained.output_text == history.output_text == SCRIPTS["answer"]
    assert chained.usage.input_tokens == history.usage.input_tokens


def test_instructions_are_a_system_message_and_do_not_chain(client):
    base = create(client, "[plain]")
    told = create(client, "[plain]", instructions="Be brief.")
    after = lambda before: create(client, "[count]", previous_response_id=before.id).usage.input_tokens

    assert told.usage.input_tokens > base.usage.input_tokens
    assert after(told) == after(base)


def test_developer_items_map_and_unknown_roles_are_refused_c12(client):
    items = lambda role: [{"role": role, "content": "Be brief."}, {"role": "user", "content": "[plain]"}]

    assert create(client, items("developer")).usage.input_tokens == create(client, items("system")).usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="role"):
        create(client, items("critic"))


def test_a_cut_answer_is_incomplete(scripted):
    events = events_of(scripted, "[loop]", max_output_tokens=16)

    assert events[-1][0] == "response.incomplete"
    answer = events[-1][1]["response"]
    assert answer["status"] == "incomplete" and answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["usage"]["output_tokens"] == 16


def test_reasoning_is_an_item_of_its_own(client):
    answer = create(client, "[think]")

    assert [i.type for i in answer.output] == ["reasoning", "message"]
    assert answer.output_text.strip() == "It is four."
    assert answer.usage.output_tokens_details.reasoning_tokens > 0


def test_the_stream_helper_of_the_client_parses(client):
    with client.responses.stream(model="any", input="[two]", tools=TOOLS) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_response()

    assert "response.function_call_arguments.done" in kinds
    assert [json.loads(i.arguments) for i in final.output if i.type == "function_call"] == [
        wire.WEATHER_ARGUMENTS, wire.TIME_ARGUMENTS]


def test_the_demo_model_chains_too_c33(demo):
    first = wire.ok(demo, "/v1/responses", {"input": "Say hello to Ann.", "temperature": 0, "max_output_tokens": 4})
    second = wire.ok(demo, "/v1/responses", {"input": "And to Bob.", "previous_response_id": first["id"],
                                             "temperature": 0, "max_output_tokens": 4})

    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"] + 4
