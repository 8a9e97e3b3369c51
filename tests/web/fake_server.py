"""A scripted stand-in for `kvasir serve`: the web chat's files and the endpoints that it uses.

What it answers depends on a word of the last user message, see SCRIPTS. GET /__log returns the
requests so far; POST /__set changes the behaviour ({"context": n, "key": "…", "tokenize": false,
"hold": true}: answers stop in their middle until hold is false again).
"""

import argparse
import http.server
import json
import pathlib
import socketserver
import threading
import time

WEB = pathlib.Path(__file__).resolve().parents[2] / "src" / "server" / "web"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
UNIT = pathlib.Path(__file__).resolve().parent / "unit"
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
MARKDOWN = pathlib.Path(__file__).with_name("sample.md")


class State:
    def __init__(self):
        self.lock = threading.Lock()
        self.reset()

    def reset(self):
        self.context, self.key, self.tokenize, self.hold, self.log, self.failures = 4096, None, True, False, [], 0
        self.chat, self.embeddings = True, False


STATE = State()


def words(text, piece=4):
    return [text[i:i + piece] for i in range(0, len(text), piece)]


def tokens_of(messages):
    """One token a word, as /tokenize counts."""
    return len(render(messages).split())


def render(messages):
    return "".join(f"<|{m['role']}|> {m.get('content') or ''} \n" for m in messages)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    # ---- plumbing
    def reply(self, status, body, content_type="application/json", headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def fail(self, status, message, code, headers=()):
        error = {"message": message, "type": "invalid_request_error", "code": code, "param": None}
        self.reply(status, {"error": error}, headers=headers)

    def allowed(self):
        if STATE.key is None or self.headers.get("Authorization") == f"Bearer {STATE.key}":
            return True
        self.fail(401, "Invalid API key", "invalid_api_key")
        return False

    def asset(self, name, folder=WEB):
        path = folder / name
        if path.parent != folder or not path.is_file() or path.suffix not in TYPES:
            return self.fail(404, "not found", "not_found")
        return self.reply(200, path.read_bytes(), TYPES[path.suffix],
                          [("Content-Security-Policy", POLICY), ("Cache-Control", "no-cache"),
                           ("X-Content-Type-Options", "nosniff")])

    # ---- routes
    def do_GET(self):
        path = self.path.split("?")[0]
        if path in ("/", "/chat"):
            return self.asset("index.html")
        if path.startswith("/assets/"):
            return self.asset(path[len("/assets/"):])
        if path.startswith("/unit/"):
            return self.asset(path[len("/unit/"):], UNIT)
        if path == "/__log":
            return self.reply(200, STATE.log)
        if path == "/health":
            return self.reply(200, {"status": "ok"})
        if not self.allowed():
            return None
        answers = {"/v1/models": models, "/props": props, "/stats": stats}
        if path in answers:
            STATE.log.append({"path": path})
            return self.reply(200, answers[path]())
        return self.fail(404, "not found", "not_found")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path == "/__reset":
            STATE.reset()
            return self.reply(200, {})
        if self.path == "/__set":
            for name, value in body.items():
                setattr(STATE, name, value)
            return self.reply(200, {})
        if not self.allowed():
            return None
        STATE.log.append({"path": self.path, "body": body})
        if self.path == "/apply-template" and STATE.tokenize:
            return self.reply(200, {"prompt": render(body["messages"])})
        if self.path == "/tokenize" and STATE.tokenize:
            return self.reply(200, {"tokens": list(range(len(body["content"].split())))})
        if self.path == "/v1/chat/completions":
            return self.complete(body)
        return self.fail(404, "not found", "not_found")

    # ---- answers
    def complete(self, body):
        asked = next((m["content"] for m in reversed(body["messages"]) if m["role"] in ("user", "tool")), "")
        prompt = tokens_of(body["messages"])
        if prompt > STATE.context:
            return self.fail(400, f"the prompt has {prompt} tokens", "context_length_exceeded")
        if "busy" in asked and STATE.failures == 0:
            STATE.failures += 1
            return self.fail(429, "The queue is full.", "queue_full", [("Retry-After", "3")])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.stream(asked, prompt, body)
        except (BrokenPipeError, ConnectionResetError):
            STATE.log.append({"path": "disconnect"})
        return None

    def event(self, data):
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        self.wfile.flush()

    def pause(self, seconds, may_hold):
        time.sleep(seconds)
        while may_hold and STATE.hold:
            time.sleep(0.02)

    def delta(self, **fields):
        self.event({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]})

    def stream(self, asked, prompt, body):
        self.delta(role="assistant", content="")
        if "prefill" in asked:
            for fed in range(512, 4096, 512):
                self.wfile.write(f": keepalive {fed}/4096\n\n".encode())
                self.wfile.flush()
                self.pause(0.1, fed == 2048)
        pieces = script(asked)
        for i, (kind, value, pause) in enumerate(pieces):
            if kind == "cut":
                return
            if kind == "error":
                return self.event({"error": {"message": value, "type": "server_error", "code": "engine_failed", "param": None}})
            self.delta(**{kind: value})
            self.pause(pause, i == len(pieces) // 3)
        finish = "tool_calls" if any(p[0] == "tool_calls" for p in pieces) else "length" if "cutoff" in asked else "stop"
        cached = prompt // 2 if prompt > 20 else 0
        self.event({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}],
                    "usage": {"prompt_tokens": prompt, "completion_tokens": len(pieces), "total_tokens": prompt + len(pieces),
                              "prompt_tokens_details": {"cached_tokens": cached}},
                    "timings": {"prompt_n": prompt - cached, "prompt_ms": 120.5, "predicted_n": len(pieces),
                                "predicted_ms": 23.8 * max(1, len(pieces)), "cache_n": cached}})
        self.wfile.write(b"data: [DONE]\n\n")


def script(asked):
    """[(delta field, value, seconds after it)] for a question."""
    def say(text, pause=0.004, kind="content"):
        return [(kind, piece, pause) for piece in words(text)]

    def think(text):
        return say(text, 0.012, "reasoning")

    if "reason" in asked:
        thought = "The user wants the sum of 17 and 25.\n\n- 17 + 20 = 37\n- 37 + 5 = 42\n\nSo the answer is 42."
        return think(thought) + say("17 + 25 = **42**.")
    if "weather" in asked and "°C" not in asked:
        calls = [{"index": 0, "id": "call_1", "type": "function",
                  "function": {"name": "get_weather", "arguments": '{"city":"Oslo","days":3}'}}]
        return think("I should look that up.") + [("tool_calls", calls, 0.01)]
    if "°C" in asked:
        return say("It is **-3 °C** in Oslo, with light snow until Thursday.")
    if "long" in asked:
        return say("".join(f"Line {i} of a long answer that goes on.\n\n" for i in range(200)), 0.01)
    if "broken" in asked:
        return say("This much arrived before the line went dead.") + [("cut", None, 0)]
    if "engine" in asked:
        return say("A few words, then") + [("error", "The engine failed: a step produced not-a-number.", 0)]
    if "hostile" in asked:
        return say(HOSTILE, 0.001)
    if "sample" in asked:
        return say(MARKDOWN.read_text(encoding="utf-8"), 0.001)
    return say(f"You said: {asked}")


HOSTILE = """<script>window.pwned = 1</script> <img src=x onerror="window.pwned = 1">

[click](javascript:window.pwned=1) [data](data:text/html,<script>window.pwned=1</script>)
[tab](java\tscript:window.pwned=1) <javascript:alert(1)> ![x](https://evil.example/pixel.png)

<iframe src="https://evil.example"></iframe> <style>body { display: none }</style>

"""
HOSTILE += ">" * 500 + " deep\n\n" + "".join("  " * i + "- x\n" for i in range(60)) + "\n"
HOSTILE += "*a **b " * 300 + "\n\n```html\n<script>window.pwned = 1</script>\n```\n"


def models():
    model = {"id": "mlx-community/Qwen3-0.6B-4bit", "object": "model", "owned_by": "kvasir",
             "context_window": STATE.context, "reasoning": True, "vision": False, "tools": True,
             "chat": STATE.chat, "embeddings": STATE.embeddings}
    return {"object": "list", "data": [model]}


def props():
    params = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.0}
    return {"default_generation_settings": {"n_ctx": STATE.context, "params": params},
            "model_path": "Qwen3-0.6B-4bit", "chat_template": "", "n_ctx": STATE.context}


def stats():
    mib = 1 << 20
    wave = int(time.time() * 10) % 40  # bars that move
    return {
        "server": {"backend": "cpu", "version": "0.1.0"},
        "prompt_cache": {"entries": 14, "bytes": (180 + wave) * mib, "max_bytes": 512 * mib,
                         "hits": 41, "misses": 9, "hit_tokens": 18234},
        "ssd_cache": {"entries": 120, "bytes": 2100 * mib, "max_bytes": 8192 * mib, "queue_bytes": 0, "writes": 130},
        "kv": {"total_bytes": 6144 * mib, "used_bytes": 2044 * mib},
        "admission": {"max_safe_context": 32768, "memory_budget_bytes": 6144 * mib, "usable_bytes": 9100 * mib,
                      "weights_bytes": 346 * mib},
        "batch": {"configured": 8, "active_rows": 1 + wave % 2, "preparing_rows": 0, "queued": 0},
    }


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass  # browsers close connections whenever they like


def start(port=0):
    server = Server(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8088)
    print(start(parser.parse_args().port)[1], flush=True)
    threading.Event().wait()
