#!/usr/bin/env python3
"""hostile.py --url http://127.0.0.1:8080 [--requests 1000000]: bytes that a server may meet, over real sockets.

Mutated JSON bodies, headers, chunking and pipelining against every route. The server must stay up, answer /health in
between, and answer a plain request as before at the end. Loopback only. Exits 1 when it does not; one JSON line last.
"""
import argparse
import collections
import concurrent.futures
import json
import random
import re
import select
import socket
import time
import urllib.parse

ROUTES = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses",
          "/api/chat", "/api/generate", "/api/show", "/tokenize", "/detokenize", "/apply-template", "/v1/embeddings",
          "/v1/models", "/v1/models/x", "/v1/responses/x", "/health", "/metrics", "/stats", "/props", "/slots", "/",
          "/assets/app.js", "/nowhere", "/%00", "/../../etc/passwd", "/assets/..%2f..%2fetc%2fpasswd"]
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "temperature": 0}
BODIES = [
    CHAT,
    {**CHAT, "stream": True, "logprobs": True, "top_logprobs": 2, "n": 2, "stop": ["a", "b"]},
    {**CHAT, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
    {"prompt": "hi", "max_tokens": 1, "echo": True, "logprobs": 1},
    {"prompt": [[1, 2], [3]], "max_tokens": 1},
    {"model": "m", "max_tokens": 1, "system": [{"type": "text", "text": "s"}],
     "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
    {"input": "hi", "max_output_tokens": 1, "instructions": "x", "store": False},
    {"model": "m", "prompt": "hi", "options": {"num_predict": 1}, "stream": False},
    {"content": "hi", "add_special": True, "with_pieces": True},
    {"tokens": [1, 2, 3]},
]
VALUES = [None, True, -1, 0, 1, 1e308, -0.0, 2**63, "", "a", "\u0000", "\U0001F600" * 3, [], {}, [[]], [None],
          {"type": "text"}, "x" * 300, 49152, 10**20]


def mutate(value, rng, depth=0):
    roll = rng.random()
    if roll < 0.15 or depth > 4:
        return rng.choice(VALUES)
    if isinstance(value, dict) and value:
        value = dict(value)
        key = rng.choice(list(value))
        if roll < 0.3:
            del value[key]
        elif roll < 0.4:
            value[rng.choice(["seed", "n", "logit_bias", "stop", "top_p", "tool_choice", "response_format", "timeout_ms",
                              "reasoning_effort", "thinking", "format", "tools"])] = rng.choice(VALUES)
        else:
            value[key] = mutate(value[key], rng, depth + 1)
    elif isinstance(value, list) and value:
        value = list(value)
        i = rng.randrange(len(value))
        value[i] = mutate(value[i], rng, depth + 1)
    return value


def body_bytes(rng):
    roll = rng.random()
    if roll < 0.02:
        return b"[" * rng.choice([10, 127, 128, 129, 5000])
    text = json.dumps(mutate(rng.choice(BODIES), rng), ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if roll < 0.25:
        text = bytearray(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text) + 1)
            if rng.random() < 0.5:
                text[at:at] = bytes([rng.randrange(256)])
            else:
                del text[at:at + rng.randint(1, 5)]
        text = bytes(text)
    return text


def chunked(body, rng):
    out = b""
    while body:
        n = rng.randint(1, max(1, len(body)))
        extension = b";a=b" if rng.random() < 0.1 else b""
        out += b"%x%s\r\n%s\r\n" % (n, extension, body[:n])
        body = body[n:]
    return out + b"0\r\n\r\n"


def request_bytes(rng, last):
    """(bytes, whether their end may be waited for in vain). Only the last request of a connection may be so broken."""
    is_broken = False
    route = rng.choice(ROUTES)
    method = rng.choice(["POST"] * 8 + ["GET"] * 4 + ["HEAD", "OPTIONS", "DELETE", "PUT", "BREW"])
    body = body_bytes(rng) if method in ("POST", "PUT") else b""
    headers = ["Host: 127.0.0.1" if not last or rng.random() < 0.8 else rng.choice(["Host: evil.test", "Host:", "host: 127.0.0.1"])]
    if rng.random() < 0.2:
        headers.append(rng.choice(["Origin: http://evil.test", "Origin: null", "X: " + "y" * 900, "Accept: */*",
                                   "Authorization: Bearer x", "x-request-id: \u00ff", "Cookie: a=b"]))
    if last and rng.random() < 0.1:
        is_broken = True
        headers.append(rng.choice(["Expect: 100-continue", "Authorization: Bearer \x7f", "Transfer-Encoding: gzip",
                                   "Content-Length: 3", "Upgrade: h2c"]))
    if body and rng.random() < 0.3:
        headers.append("Transfer-Encoding: chunked")
        body = chunked(body, rng)
    elif method in ("POST", "PUT"):
        wrong = last and rng.random() < 0.1
        is_broken |= wrong
        headers.append(f"Content-Length: {len(body) + (rng.choice([-1, 1, 10**12]) if wrong else 0)}")
    if last:
        headers.append("Connection: close")
    line = f"{method} {route} HTTP/1.{rng.choice('110') if last else 1}"
    data = (line + "\r\n" + "\r\n".join(headers) + "\r\n\r\n").encode("latin-1") + body
    if last and rng.random() < 0.2:
        is_broken = True
        data = bytearray(data)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = bytes(data)
    return data, is_broken


def exchange(address, data, patience, rng):
    """Sends all, maybe in pieces, while reading what comes. Returns the statuses."""
    cut = rng.randrange(len(data)) if rng.random() < 0.1 else None
    if cut is not None and rng.random() < 0.3:
        data = data[:cut]
        patience = 0.0  # leaves in the middle
    out, left = b"", memoryview(data)
    with socket.create_connection(address, timeout=20) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.setblocking(False)
        try:
            while True:
                readable, writable, _ = select.select([s], [s] if left else [], [], patience)
                if writable:
                    left = left[s.send(left[:cut] if cut else left):]
                    cut = None
                if readable:
                    if not (piece := s.recv(65536)):
                        break
                    out += piece
                if not readable and not writable:
                    break
        except ConnectionError:
            pass
    return [found.decode() for found in re.findall(rb"HTTP/1\.1 (\d\d\d) ", out) if found != b"100"]


def healthy(address):
    with socket.create_connection(address, timeout=20) as s:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        out = b""
        while piece := s.recv(65536):
            out += piece
    return b'{"status": "ok"}' in out


def attack(args, seed):
    """One attacker's share: statuses it saw, requests it sent, and whether /health ever failed."""
    parts = urllib.parse.urlsplit(args.url)
    address = (parts.hostname, parts.port)
    rng = random.Random(seed)
    statuses, n_sent, n_connections, began = collections.Counter(), 0, 0, time.monotonic()
    while sum(statuses.values()) < args.requests / args.jobs and time.monotonic() - began < args.seconds:
        n_here = rng.choice([1, 2, 8, 32, 32])
        requests = [request_bytes(rng, i + 1 == n_here) for i in range(n_here)]
        patience = 0.3 if requests[-1][1] else 20
        statuses.update(exchange(address, b"".join(data for data, _ in requests), patience, rng))
        n_sent += n_here
        n_connections += 1
        if n_connections % 50 == 0 and not healthy(address):
            return statuses, n_sent, False
    return statuses, n_sent, healthy(address)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--requests", type=int, default=1_000_000, help="answered ones")
    parser.add_argument("--seconds", type=float, default=3600, help="stop after this long")
    parser.add_argument("--jobs", type=int, default=16, help="attackers at once")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    assert urllib.parse.urlsplit(args.url).hostname in ("127.0.0.1", "localhost", "::1"), "loopback only"
    began = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        reports = list(pool.map(attack, [args] * args.jobs, [args.seed * 1000 + i for i in range(args.jobs)]))
    statuses = sum((r[0] for r in reports), collections.Counter())
    is_healthy = all(r[2] for r in reports)
    expected = {"501", "503"}  # an unknown transfer coding; a closed or loading engine
    failures = {s: c for s, c in statuses.items() if s.startswith("5") and s not in expected}
    print(json.dumps({"answered": sum(statuses.values()), "sent": sum(r[1] for r in reports),
                      "seconds": round(time.monotonic() - began, 1), "statuses": dict(sorted(statuses.items())),
                      "healthy": is_healthy, "failures": failures}))
    raise SystemExit(0 if is_healthy and not failures else 1)


if __name__ == "__main__":
    main()
