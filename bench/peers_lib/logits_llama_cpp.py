"""llama.cpp's logits of a row of tokens: `logits_llama_cpp.py MODEL.gguf THREADS TOKENS.json OUT`, f32 [tokens, vocab]."""
import ctypes
import json
import sys

import llama_cpp as L

model_path, n_threads, tokens_path, out_path = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
L.llama_backend_init()
silence = L.llama_log_callback(lambda level, text, data: None)  # a name: it must stay alive
L.llama_log_set(silence, None)
model = L.llama_model_load_from_file(model_path.encode(), L.llama_model_default_params())
vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
tokens = json.load(open(tokens_path))
CHUNK = 64

params = L.llama_context_default_params()
params.n_ctx = len(tokens) + 32
params.n_batch = params.n_ubatch = CHUNK
params.n_threads = params.n_threads_batch = n_threads
context = L.llama_init_from_model(model, params)
with open(out_path, "wb") as out:
    for begin in range(0, len(tokens), CHUNK):
        part = tokens[begin : begin + CHUNK]
        batch = L.llama_batch_init(len(part), 0, 1)
        batch.n_tokens = len(part)
        for i, token in enumerate(part):
            batch.token[i] = token
            batch.pos[i] = begin + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = True
        if L.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        logits = L.llama_get_logits(context)
        out.write(ctypes.string_at(ctypes.cast(logits, ctypes.c_void_p), len(part) * vocab * 4))
        L.llama_batch_free(batch)
