"""llama.cpp behind the protocol of worker.py: `worker_llama_cpp.py MODEL.gguf THREADS`."""
import sys
import time

import llama_cpp as L

import worker

model_path, n_threads = sys.argv[1], int(sys.argv[2])
L.llama_backend_init()
silence = L.llama_log_callback(lambda level, text, data: None)  # a name: it must stay alive
L.llama_log_set(silence, None)
model = L.llama_model_load_from_file(model_path.encode(), L.llama_model_default_params())
vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))


def decode(context, tokens, positions, rows, wanted):
    """One step: a token each of these rows at these positions; logits of those wanted."""
    batch = L.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, (token, position, row) in enumerate(zip(tokens, positions, rows)):
        batch.token[i] = token
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = row
        batch.logits[i] = i in wanted
    if L.llama_decode(context, batch) != 0:
        raise RuntimeError("llama_decode failed")
    L.llama_synchronize(context)
    L.llama_batch_free(batch)


def measure(job):
    n_prefill, n_decode, n_rows = job["prefill"], job["decode"], job["rows"]
    params = L.llama_context_default_params()
    params.n_ctx = n_rows * (n_prefill + n_decode + 32)
    params.n_batch = params.n_ubatch = min(2048, max(n_prefill, n_rows))
    params.n_threads = params.n_threads_batch = n_threads
    params.n_seq_max = n_rows
    params.kv_unified = True
    params.no_perf = True
    context = L.llama_init_from_model(model, params)
    prompt = worker.prompt(job, vocab)
    begin = time.perf_counter()
    for row in range(n_rows):
        for at in range(0, n_prefill, params.n_batch):
            part = prompt[at : at + params.n_batch]
            decode(context, part, range(at, at + len(part)), [row] * len(part), {len(part) - 1})
    prefilled = time.perf_counter()
    for step in range(n_decode):
        tokens = [(1 + step * 104729 + row) % (vocab - 8) for row in range(n_rows)]
        decode(context, tokens, [n_prefill + step] * n_rows, range(n_rows), set(range(n_rows)))
    end = time.perf_counter()
    L.llama_free(context)
    return worker.rates(job, prefilled - begin, end - prefilled)


worker.serve(measure)
