"""HTTP as it is on the wire, where a client library would hide something."""
import contextlib
import json
import socket
import time
import urllib.parse

import httpx

CLIENT = httpx.Client(timeout=120, trust_env=False)
DONE = "[DONE]"

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
           "required": ["city"]}
TIME = {"type": "object", "properties": {"zone": {"type": "object"}, "exact": {"type": "boolean"}}}
SCHEMAS = {"get_weather": WEATHER, "get_time": TIME}
WEATHER_ARGUMENTS = {"city": "Zürich", "days": 2}
TIME_ARGUMENTS = {"zone": {"name": "UTC"}, "exact": True}
OPENAI_TOOLS = [{"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema}}
                for name, schema in SCHEMAS.items()]


def user(text):
    return [{"role": "user", "content": text}]


def post(server, path, body, **headers):
    return CLIENT.post(server.url + path, json=body, headers=headers)


def get_json(server, path):
    reply = CLIENT.get(server.url + path)
    assert reply.status_code == 200, reply.text
    return reply.json()


def ok(server, path, body, **headers):
    reply = post(server, path, body, **headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


def chat(server, content, **fields):
    """A chat completion at temperature 0 of one user message, or of the messages given."""
    messages = user(content) if isinstance(content, str) else content
    return ok(server, "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 16, **fields})


def complete(server, prompt, **fields):
    return ok(server, "/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 8, **fields})


def sse(server, path, body, **headers):
    """[(event name or None, data)] of a stream; data is parsed JSON or DONE. Every event is strict UTF-8 and JSON."""
    with CLIENT.stream("POST", server.url + path, json={**body, "stream": True}, headers=headers) as reply:
        raw = reply.read()
        assert reply.status_code == 200, raw
        assert reply.headers["content-type"].startswith("text/event-stream")
    assert raw.endswith(b"\n\n"), raw[-100:]
    out = []
    for block in raw[:-2].split(b"\n\n"):
        if block.startswith(b":"):
            continue
        fields = dict(line.split(": ", 1) for line in block.decode("utf-8", "strict").split("\n"))
        assert set(fields) <= {"event", "data"}, block
        data = fields["data"]
        out.append((fields.get("event"), data if data == DONE else json.loads(data)))
    return out


def chat_chunks(server, body, path="/v1/chat/completions"):
    """The chunks of a stream in OpenAI's shape, without the [DONE] that must end it."""
    events = sse(server, path, body)
    assert events[-1] == (None, DONE)
    assert all(name is None and data != DONE for name, data in events[:-1])
    return [data for _, data in events[:-1]]


def deltas(chunks, index=0):
    return [c["delta"] for chunk in chunks for c in chunk["choices"] if c["index"] == index]


def joined(chunks, field="content", index=0):
    return "".join(delta.get(field) or "" for delta in deltas(chunks, index))


def finish_reasons(chunks, index=0):
    return [c["finish_reason"] for chunk in chunks for c in chunk["choices"]
            if c["index"] == index and c["finish_reason"] is not None]


def openai_error(reply, status, code=None):
    """The error object of an OpenAI-shaped reply (SRV-3)."""
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "code", "param"}, error
    if code is not None:
        assert error["code"] == code, error
    return error


def connect(server):
    parts = urllib.parse.urlsplit(server.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def request_bytes(path, body, method="POST", host="127.0.0.1", headers=()):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", f"Content-Length: {len(body)}",
             "Content-Type: application/json", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def exchange(server, data):
    """Sends bytes, reads to the end: (status, headers by lower name, body)."""
    with connect(server) as connection:
        connection.sendall(data)
        raw = b""
        while piece := connection.recv(65536):
            raw += piece
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    return int(lines[0].split(" ")[1]), {name.lower(): value for name, value in headers.items()}, body


@contextlib.contextmanager
def endless(server, stream=False):
    """A request to the scripted model that runs, or waits, until the block ends."""
    connection = connect(server)
    body = {"messages": user("[loop]"), "max_tokens": 60000, "stream": stream}
    connection.sendall(request_bytes("/v1/chat/completions", body))
    try:
        yield connection
    finally:
        connection.close()


def batch(server):
    return get_json(server, "/stats")["batch"]


def n_requests(server):
    now = batch(server)
    return now["active_rows"] + now["preparing_rows"] + now["queued"]


def wait_until(what, seconds, step=0.01):
    """Seconds until what() held; fails when it never did."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if what():
            return time.monotonic() - began
        time.sleep(step)
    raise AssertionError(f"not so within {seconds} s")
