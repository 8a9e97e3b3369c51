"""Embeddings (SRV-14) through the clients people use, on the small BERT of tests/data."""
import math
import pathlib

import ollama
import openai
import pytest
from langchain_openai import OpenAIEmbeddings

import wire

MODEL = pathlib.Path(__file__).resolve().parents[1] / "data" / "models" / "bert"
TEXTS = ["the river and the mountain", "a story of a king", "gold"]


@pytest.fixture(scope="module")
def server(start):
    with start(MODEL) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_openai_client_reads_both_encodings_alike(client):
    packed = client.embeddings.create(model="bert", input=TEXTS)  # the client asks for base64
    plain = client.embeddings.create(model="bert", input=TEXTS, encoding_format="float")

    assert [e.embedding for e in packed.data] == [e.embedding for e in plain.data]
    assert [e.index for e in plain.data] == [0, 1, 2]
    assert all(math.isclose(math.hypot(*e.embedding), 1, abs_tol=1e-6) for e in plain.data)
    assert plain.usage.prompt_tokens == plain.usage.total_tokens > len(TEXTS)


def test_openai_client_sends_tokens_and_dimensions(client, server):
    tokens = wire.ok(server, "/tokenize", {"content": TEXTS[0], "add_special": True})["tokens"]

    by_text = client.embeddings.create(model="bert", input=TEXTS[0], dimensions=16)
    by_tokens = client.embeddings.create(model="bert", input=[tokens], dimensions=16)

    assert by_text.data[0].embedding == by_tokens.data[0].embedding
    assert len(by_text.data[0].embedding) == 16


def test_refusals_are_bad_requests_that_name_the_field(client):
    for field, more in {"input": {"input": ""}, "dimensions": {"dimensions": 1000},
                        "encoding_format": {"encoding_format": "int8"}}.items():
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(**{"model": "bert", "input": "x"} | more)
        assert refused.value.param == field
    with pytest.raises(openai.BadRequestError) as refused:
        client.embeddings.create(model="bert", input="a " * 300)
    assert refused.value.code == "context_length_exceeded"


def test_langchain_embeds_documents_and_queries(server):
    model = OpenAIEmbeddings(base_url=f"{server.url}/v1", api_key="none", model="bert",
                             check_embedding_ctx_length=False)
    documents = model.embed_documents(TEXTS)

    assert len(documents) == 3
    assert model.embed_query(TEXTS[1]) == documents[1]


def test_ollama_client_embeds(client, server):
    expected = client.embeddings.create(model="bert", input=TEXTS).data[1].embedding
    remote = ollama.Client(server.url)

    assert list(remote.embed("bert", TEXTS).embeddings[1]) == expected
    assert list(remote.embeddings("bert", TEXTS[1]).embedding) == expected


def test_an_embedding_model_does_not_chat(client):
    with pytest.raises(openai.BadRequestError, match="produces embeddings, not text"):
        client.chat.completions.create(model="bert", messages=[{"role": "user", "content": "hi"}])
