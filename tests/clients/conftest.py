"""The servers of the tests: the demo model, the scripted model, and either of them with more flags."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.parse

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look-up outside
os.environ["LANGCHAIN_TRACING_V2"] = "false"
for name in [n for n in os.environ if n.lower().endswith("_proxy") or n.startswith("KVASIR_") and n != "KVASIR_BIN"]:
    del os.environ[name]

import pytest

import scripted_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS = 60


class Server:
    """One `kvasir serve` on a free port of loopback."""

    def __init__(self, binary, model, flags, log_path):
        self.log_path = log_path
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(
                [str(binary), "serve", str(model), "--port", "0", *flags], stdout=log, stderr=log)
        self.url = self._wait_for_url()

    def _wait_for_url(self):
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            if found := re.search(r"listening on (http://[0-9.]+:\d+)", self.log()):
                return found[1]
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.stop()
        raise AssertionError("no server: " + self.log())

    def log(self):
        return self.log_path.read_text(errors="replace")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        if self.process.poll() is not None:
            return
        self.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class GivenServer:
    """A server that runs already."""

    def __init__(self, url):
        assert urllib.parse.urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1"), "loopback only"
        self.url = url.rstrip("/")


def pytest_addoption(parser):
    parser.addoption("--url", help="a running server of the demo model")


@pytest.fixture(scope="session")
def binary(request):
    given = os.environ.get("KVASIR_BIN")
    builds = [given] if given else [ROOT / "build" / kind / "bin" / "kvasir" for kind in ("release", "dev")]
    for path in map(pathlib.Path, builds):
        if path.is_file():
            return path.resolve()
    why = f"no kvasir binary at {builds[0]}: make build, or set KVASIR_BIN"
    pytest.skip(why) if request.config.getoption("--url") and not given else pytest.fail(why)


@pytest.fixture(scope="session")
def start(binary, tmp_path_factory):
    """start(model, *flags): a context with a Server, which must have lived until its end."""
    logs = tmp_path_factory.mktemp("logs")

    @contextlib.contextmanager
    def run(model, *flags, may_end=False):
        server = Server(binary, model, flags, logs / f"{len(list(logs.iterdir()))}.log")
        try:
            yield server
            assert may_end or server.process.poll() is None, server.log()[-2000:]
        finally:
            server.stop()

    return run


@pytest.fixture(scope="session")
def demo_model():
    done = subprocess.run([ROOT / "tools" / "fetch_model.sh"], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[-1]


@pytest.fixture(scope="session")
def script_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "scripted"
    scripted_model.write_checkpoint(folder)
    return folder


@pytest.fixture(scope="session")
def demo(request):
    """SmolLM2-135M-Instruct."""
    if url := request.config.getoption("--url"):
        yield GivenServer(url)
        return
    with request.getfixturevalue("start")(request.getfixturevalue("demo_model")) as server:
        yield server


@pytest.fixture(scope="session")
def scripted(start, script_folder):
    with start(script_folder) as server:
        yield server
