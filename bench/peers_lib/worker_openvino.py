"""OpenVINO GenAI behind the protocol of worker.py: `worker_openvino.py MODEL.gguf THREADS`. It reads GGUF itself and
keeps its own defaults: CPU plugin, 8-bit KV cache, the precision that it takes for this CPU."""
import sys

import numpy
import openvino
import openvino_genai

import worker

model_path, n_threads = sys.argv[1], int(sys.argv[2])
pipeline = openvino_genai.LLMPipeline(model_path, "CPU", INFERENCE_NUM_THREADS=n_threads)
VOCAB = 40000  # ids below it are in every vocabulary that is measured


def measure(job):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = job["decode"] + 1  # the prompt's step gives the first
    config.ignore_eos = True
    config.do_sample = False
    ids = numpy.array([worker.prompt({**job, "salt": job["salt"] * 64 + row}, VOCAB) for row in range(job["rows"])], dtype=numpy.int64)
    inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(numpy.ones_like(ids)))
    metrics = pipeline.generate(inputs, config).perf_metrics
    first = metrics.get_ttft().mean / 1e3  # of all rows: its time a token is one row's share of a step
    return worker.rates(job, first, metrics.get_generate_duration().mean / 1e3 - first)


worker.serve(measure)
