"""Text completions: echo and scoring, token prompts, penalties, the prompt cache."""
import concurrent.futures

import openai
import pytest

import wire
from scripted_model import LOOP, SCRIPTS, trigger

BLOCK = 64  # the default KV block


def one(answer):
    return answer["choices"][0]


def chunks_of(server, **body):
    return wire.chat_chunks(server, body, "/v1/completions")


def text_of(chunks, index=0):
    return "".join(c["text"] for chunk in chunks for c in chunk["choices"] if c["index"] == index)


def test_the_client_streams_what_it_gets_whole(demo):
    with openai.OpenAI(base_url=demo.url + "/v1", api_key="any") as client:
        ask = lambda **more: client.completions.create(
            model="any", prompt="The sea is", temperature=0, max_tokens=6, **more)
        whole, stream = ask(), list(ask(stream=True))

    assert whole.choices[0].text == "".join(c.choices[0].text for c in stream) != ""
    assert whole.object == "text_completion" and whole.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_echo_with_no_tokens_scores_the_prompt_c28(demo, stream):
    prompt = "Seven times six is 42"
    body = {"prompt": prompt, "max_tokens": 0, "echo": True, "logprobs": 1, "temperature": 0}
    if stream:
        chunks = chunks_of(demo, **body)
        assert text_of(chunks) == prompt and wire.finish_reasons(chunks) == ["length"]
        parts = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0].get("logprobs")]
        logprobs = {key: [v for part in parts for v in part[key]] for key in ("tokens", "token_logprobs")}
        assert chunks[-1]["usage"]["completion_tokens"] == 0
    else:
        answer = wire.ok(demo, "/v1/completions", body)
        assert one(answer)["text"] == prompt and one(answer)["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 0
        logprobs = one(answer)["logprobs"]
        assert set(logprobs) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
        assert logprobs["top_logprobs"][0] is None
        assert logprobs["text_offset"] == [len("".join(logprobs["tokens"][:i])) for i in range(len(logprobs["tokens"]))]
    assert "".join(logprobs["tokens"]) == prompt
    assert logprobs["token_logprobs"][0] is None and all(v <= 0 for v in logprobs["token_logprobs"][1:])


def test_a_long_prompt_is_scored_beside_others_c28(demo):
    """Longer than there are rows, and nobody beside it suffers."""
    prompt = "The sea is wide and the night is long. " * 12
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        others = [pool.submit(wire.complete, demo, f"{i} ships", max_tokens=24) for i in range(3)]
        scored = pool.submit(wire.complete, demo, prompt, max_tokens=0, echo=True, logprobs=1)
        logprobs = one(scored.result())["logprobs"]
        assert all(one(other.result())["text"] for other in others)
    assert one(scored.result())["text"] == prompt and len(logprobs["tokens"]) > 100
    assert all(v <= 0 for v in logprobs["token_logprobs"][1:])


def test_offsets_and_names_of_parts_of_characters_samp31(demo):
    scored = one(wire.complete(demo, "Hello \U0001f600\U0001f603 \u4e2d\u6587 x", max_tokens=0, echo=True, logprobs=5))

    logprobs = scored["logprobs"]
    assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
    assert logprobs["text_offset"][-1] <= len(scored["text"]) - 1
    assert all(len(top) == 5 for top in logprobs["top_logprobs"][1:])


def test_two_scored_copies_are_alike_c28(demo):
    answer = wire.ok(demo, "/v1/completions", {"prompt": "Seven times six is 42", "max_tokens": 0, "echo": True,
                                               "logprobs": 1, "n": 2})

    assert [c["index"] for c in answer["choices"]] == [0, 1]
    assert one(answer)["logprobs"] == answer["choices"][1]["logprobs"]


def test_the_score_of_a_text_is_that_of_its_generation(demo):
    made = wire.complete(demo, "The sea is", max_tokens=4, logprobs=0)
    scored = wire.complete(demo, "The sea is" + one(made)["text"], max_tokens=0, echo=True, logprobs=0)

    tail = one(scored)["logprobs"]["token_logprobs"][-4:]
    assert tail == pytest.approx(one(made)["logprobs"]["token_logprobs"], abs=0.05)


def test_logprobs_stream_as_they_come_whole_samp31(demo):
    body = {"prompt": "The sea is", "temperature": 0, "max_tokens": 6, "logprobs": 2}
    whole = one(wire.ok(demo, "/v1/completions", body))
    parts = [c["choices"][0]["logprobs"] for c in chunks_of(demo, **body) if c["choices"][0].get("logprobs")]

    assert set(whole["logprobs"]) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    for key, values in whole["logprobs"].items():
        assert [v for part in parts for v in part[key]] == values and len(values) == 6, key
    assert "".join(whole["logprobs"]["tokens"]) == whole["text"]
    assert all(len(top) == 2 and max(top.values()) == own for top, own in zip(
        whole["logprobs"]["top_logprobs"], whole["logprobs"]["token_logprobs"]))


def test_logprobs_true_is_no_alternatives_samp41(scripted):
    for value in (0, True):
        block = one(wire.complete(scripted, "x" + trigger("plain"), logprobs=value))["logprobs"]
        assert len(block["tokens"]) == 8 and all(not top for top in block["top_logprobs"] or [])
    assert one(wire.complete(scripted, "x", logprobs=False))["logprobs"] is None


def test_echo_precedes_the_text(scripted):
    prompt = "ab" + trigger("plain")

    said = one(wire.complete(scripted, prompt, echo=True, max_tokens=100))["text"]

    assert said.startswith("ab") and said.endswith(SCRIPTS["plain"])
    assert said == text_of(chunks_of(scripted, prompt=prompt, echo=True, max_tokens=100, temperature=0))


def test_several_prompts_and_token_arrays_are_served_in_order(scripted):
    prompts = ["x" + trigger(name) for name in ("plain", "count", "unicode")]
    ids = [wire.ok(scripted, "/tokenize", {"content": p, "parse_special": True})["tokens"] for p in prompts]

    for prompt in (prompts, ids):
        answer = wire.complete(scripted, prompt, max_tokens=100)
        assert [c["text"] for c in answer["choices"]] == [SCRIPTS[n] for n in ("plain", "count", "unicode")]
        assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert one(wire.complete(scripted, ids[1], max_tokens=100))["text"] == SCRIPTS["count"]


def test_the_rows_of_one_request_stream_by_index(scripted):
    prompts = ["x" + trigger(name) for name in ("plain", "count")]

    chunks = chunks_of(scripted, prompt=prompts, n=2, max_tokens=100, temperature=0)

    assert [text_of(chunks, i) for i in range(4)] == [SCRIPTS["plain"]] * 2 + [SCRIPTS["count"]] * 2
    assert all(len(wire.finish_reasons(chunks, i)) == 1 for i in range(4))


def test_too_many_prompts_a_suffix_and_odd_prompts_are_refused_srv11(scripted):
    for body in [{"prompt": ["a"] * 65}, {"prompt": "a", "suffix": "b"}, {"prompt": 5}, {"prompt": [True]},
                 {"prompt": [-1]}, {"prompt": [10**9]}, {"prompt": []}, {}, {"prompt": "a", "n": 0},
                 {"prompt": "a", "n": 9}]:
        error = wire.openai_error(wire.post(scripted, "/v1/completions", body), 400, "invalid_request")
        assert ("n " if "n" in body else "suffix" if "suffix" in body else "prompt") in error["message"], (body, error)


def test_presence_sees_the_output_only_and_repetition_the_prompt_too_c10(demo):
    first = lambda **more: one(wire.complete(
        demo, "blue blue blue", max_tokens=1, logprobs=5, **more))["logprobs"]["top_logprobs"][0]
    plain = first()

    assert first(presence_penalty=2) == plain and first(frequency_penalty=2) == plain
    assert first(repetition_penalty=1.5) != plain
    assert first(repetition_penalty=0) == plain and first(repetition_penalty=1) == plain


def test_presence_penalty_counts_what_was_emitted(scripted):
    prompt = "x" + trigger("loop")
    n = 30

    assert one(wire.complete(scripted, prompt, max_tokens=n))["text"][:40] == (LOOP * 9)[:40]
    penalised = one(wire.complete(scripted, prompt, max_tokens=n, presence_penalty=1000))["text"]
    assert not penalised.startswith(LOOP * 2) and penalised.startswith(LOOP[:-1])


def test_the_very_same_prompt_again_says_the_same_c18(demo):
    answers = [wire.complete(demo, "Hello", max_tokens=6) for _ in range(3)]

    assert len({one(a)["text"] for a in answers}) == 1 and one(answers[0])["text"]


@pytest.mark.parametrize("n_tokens", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_full_hits_around_the_block_size_say_the_same_c18(scripted, demo, n_tokens):
    """The scripted model fixes the lengths, the demo model the meaning."""
    cases = [(scripted, f"<{n_tokens}>", trigger("plain"))]
    cases += [(demo, f"Case {n_tokens}.", " stone")] * (n_tokens in (BLOCK, BLOCK + 1))
    for server, start, end in cases:
        count = lambda text: len(wire.ok(server, "/tokenize", {"content": text, "parse_special": True})["tokens"])
        filler = "x" if server is scripted else " stone"
        fixed = count(start + end)
        prompt = start + filler * (n_tokens - fixed) + end
        assert count(prompt) == n_tokens
        ask = lambda **more: wire.complete(server, prompt, max_tokens=4, **more)
        cold = ask(cache=False)
        again = [ask() for _ in range(3)]
        assert {one(a)["text"] for a in again} == {one(cold)["text"]} and one(cold)["text"]
        assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        cached = again[2]["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= (n_tokens - 1) // BLOCK * BLOCK and cached < n_tokens


def test_a_prompt_that_holds_its_own_answer_goes_on_c18(demo):
    prompt = "The sea is" + " calm and deep" * 18
    first = one(wire.complete(demo, prompt, max_tokens=8))["text"]
    longer = {"max_tokens": 3}

    warm = wire.complete(demo, prompt + first, **longer)
    cold = wire.complete(demo, prompt + first, cache=False, **longer)

    assert one(warm)["text"] == one(cold)["text"]


BIASES = [{"-1": 5}, {"AI": -100}, {"99999999999": 1}, {"1": "x"}, {"1": True}, [1], "x", {"1.5": 1}, {"": 1}]


@pytest.mark.parametrize("bias", BIASES, ids=repr)
def test_a_wrong_logit_bias_is_refused_by_name_c27(scripted, bias):
    error = wire.openai_error(wire.post(scripted, "/v1/completions", {"prompt": "a", "logit_bias": bias}), 400)

    assert "logit_bias" in error["message"]


def test_the_bound_of_logit_bias_is_the_vocabulary_c27(demo, scripted):
    reply = wire.post(demo, "/v1/completions", {"prompt": "a", "max_tokens": 1, "logit_bias": {"49152": 5}})

    assert wire.openai_error(reply, 400)["message"] == "logit_bias token id 49152 is out of range"
    assert one(wire.complete(demo, "a", max_tokens=1, logit_bias={"49151": -5}))["finish_reason"] == "length"
    raw = wire.exchange(scripted, wire.request_bytes("/v1/completions", b'{"prompt":"a","max_tokens":2,'
                                                     b'"logit_bias":{"65":1e999,"66":-1e999}}'))
    assert raw[0] in (200, 400)
    assert one(wire.complete(scripted, "a" + trigger("plain"), max_tokens=100))["text"] == SCRIPTS["plain"]


FLIP = {"65": 1000, "66": 1000}


def flips(server, **fields):
    """A string of A and B, each drawn with one half."""
    text = one(wire.complete(server, "x", logit_bias=FLIP, **{"temperature": 1, "max_tokens": 40, **fields}))["text"]
    assert set(text) == {"A", "B"}
    return text


def test_a_seed_repeats_in_any_company_c08(scripted):
    alone = flips(scripted, seed=42)

    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            others = [pool.submit(flips, scripted) for _ in range(4)]
            assert pool.submit(flips, scripted, seed=42).result() == alone
            others += [pool.submit(flips, scripted) for _ in range(3)]
        assert len({alone, *(o.result() for o in others)}) == 8  # SAMP-22: distinct without a seed


@pytest.mark.parametrize("seeds", [(0, 1), (-1, 1), (-2**63, 0), (2**53 + 1, 2**53 + 2),
                                   (2**63 + 1, 2**63 + 2), (2**64 - 2, 2**64 - 1)], ids=repr)
def test_any_64_bit_integer_is_a_seed_of_its_own_samp22(scripted, seeds):
    first, second = (flips(scripted, seed=seed) for seed in seeds)

    assert first != second and flips(scripted, seed=seeds[0]) == first


def test_the_choices_of_a_seed_are_those_of_seed_plus_index_samp22(scripted):
    answer = wire.complete(scripted, "x", logit_bias=FLIP, temperature=1, max_tokens=40, n=4, seed=7)

    assert [c["text"] for c in answer["choices"]] == [flips(scripted, seed=7 + i) for i in range(4)]


def test_a_bias_wins_and_bans_c27(scripted):
    force = one(wire.complete(scripted, "a", max_tokens=3, logit_bias={"66": 1000}))
    assert force["text"] == "BBB" and force["finish_reason"] == "length"
    ban = one(wire.complete(scripted, "a", max_tokens=3, logit_bias={"66": 1000, "67": 2000, "68": -1000}))
    assert ban["text"] == "CCC"
