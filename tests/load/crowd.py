#!/usr/bin/env python3
"""crowd.py --url http://127.0.0.1:8080 [--streams 200] [--seconds 180]: many clients at once, some rude.

Streams greedy chats; a third of the clients leave in the middle, a sixth read slowly. Checks: every stream completes or
was left by us; what it said equals the same request alone (a prefix of it, when we left); /health answers in 50 ms
throughout; afterwards no row runs, no block is held by a row and the server's memory is where it was after warm-up.
Loopback only. Exits 1 when anything is wrong; prints one line of JSON last.
"""
import argparse
import asyncio
import json
import random
import statistics
import time
import urllib.parse
import urllib.request

PROMPTS = [
    "Name three rivers.", "What is the capital of France?", "Write a haiku about rain.", "Count from one to ten.",
    "Explain what a database index is.", "Give me a recipe with eggs.", "Who wrote Hamlet?", "What is 12 times 7?",
    "Describe the moon in one sentence.", "List the colours of the rainbow.",
]
LENGTHS = [16, 48, 96]


def request_body(prompt, max_tokens):
    return json.dumps({
        "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": max_tokens, "stream": True,
    }).encode()


class Stream:
    """One raw HTTP/1.1 request with a chunked SSE answer."""

    def __init__(self, host, port, body, receive_buffer=None):
        self.host, self.port, self.body, self.receive_buffer = host, port, body, receive_buffer

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection(
            self.host, self.port, limit=self.receive_buffer or 2**16)
        self.writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(self.body), self.body))
        head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1])

    async def chunks(self):
        while True:
            size = int(await self.reader.readline(), 16)
            data = await self.reader.readexactly(size)
            await self.reader.readexactly(2)
            if size == 0:
                return
            yield data

    def close(self):
        self.writer.close()


def events(buffer):
    """Splits complete SSE events off the buffer."""
    while b"\n\n" in buffer:
        event, _, buffer = buffer.partition(b"\n\n")
        yield event, buffer


async def converse(host, port, prompt, max_tokens, rng, manner):
    """Returns (how it ended, text, seconds until the first text)."""
    stream = Stream(host, port, request_body(prompt, max_tokens), 2**10 if manner == "slow" else None)
    began = time.monotonic()
    status = await stream.open()
    if status != 200:
        stream.close()
        return f"http {status}", "", None
    leave_after = rng.randint(0, max_tokens) if manner == "leaves" else None
    text, first, buffer, n_deltas = "", None, b"", 0
    async for data in stream.chunks():
        buffer += data
        for event, rest in events(buffer):
            buffer = rest
            if not event.startswith(b"data: "):
                continue
            if event == b"data: [DONE]":
                stream.close()
                return "done", text, first
            chunk = json.loads(event[6:])
            if "error" in chunk:
                stream.close()
                return "error " + json.dumps(chunk["error"]), text, first
            for choice in chunk["choices"]:
                piece = choice["delta"].get("content") or ""
                if piece and first is None:
                    first = time.monotonic() - began
                text += piece
                n_deltas += 1
        if leave_after is not None and n_deltas >= leave_after:
            stream.close()
            return "left", text, first
        if manner == "slow":
            await asyncio.sleep(rng.uniform(0.02, 0.3))
    stream.close()
    return "cut", text, first


def get_json(url, path):
    with urllib.request.urlopen(url + path, timeout=30) as reply:
        return json.load(reply)


def resident_bytes(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


async def probe_health(host, port, stop, latencies):
    while not stop.is_set():
        began = time.monotonic()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        body = await reader.read()
        latencies.append((time.monotonic() - began) * 1e3)
        assert b'{"status": "ok"}' in body, body
        writer.close()
        await asyncio.sleep(0.1)


async def crowd(args, alone, tally):
    parts = urllib.parse.urlsplit(args.url)
    host, port = parts.hostname, parts.port
    stop, latencies, firsts = asyncio.Event(), [], []
    end = time.monotonic() + args.seconds
    prober = asyncio.create_task(probe_health(host, port, stop, latencies))

    async def client(seed):
        rng = random.Random(seed)
        while time.monotonic() < end:
            key = (rng.choice(PROMPTS), rng.choice(LENGTHS))
            manner = rng.choices(["polite", "leaves", "slow"], [3, 2, 1])[0]
            how, text, first = await converse(host, port, *key, rng, manner)
            tally[how if how in ("done", "left") else "other: " + how] = tally.get(
                how if how in ("done", "left") else "other: " + how, 0) + 1
            if first is not None:
                firsts.append(first)
            whole = alone[key]
            if text != whole if how == "done" else not whole.startswith(text):
                tally["different"] = tally.get("different", 0) + 1

    await asyncio.gather(*(client(args.seed * 100003 + i) for i in range(args.streams)))
    stop.set()
    await prober
    return latencies, firsts


async def lone_answers(args):
    parts = urllib.parse.urlsplit(args.url)
    alone = {}
    for prompt in PROMPTS:
        for n in LENGTHS:
            how, text, _ = await converse(parts.hostname, parts.port, prompt, n, random.Random(0), "polite")
            assert how == "done", how
            alone[(prompt, n)] = text
    return alone


def wait_idle(url, seconds):
    """Until no row runs: how long that took after the last client was gone."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        batch = get_json(url, "/stats")["batch"]
        if batch["active_rows"] + batch["preparing_rows"] + batch["queued"] == 0:
            return time.monotonic() - began
        time.sleep(0.01)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--health-ms", type=float, default=50, help="bound of /health, as its 99th percentile")
    args = parser.parse_args()
    assert urllib.parse.urlsplit(args.url).hostname in ("127.0.0.1", "localhost", "::1"), "loopback only"

    alone = asyncio.run(lone_answers(args))
    pid = get_json(args.url, "/stats")["server"]["pid"]
    warm = argparse.Namespace(**{**vars(args), "seconds": min(15, args.seconds / 4), "seed": args.seed + 7})
    asyncio.run(crowd(warm, alone, {}))
    wait_idle(args.url, 30)
    rss_before = resident_bytes(pid)

    tally = {}
    latencies, firsts = asyncio.run(crowd(args, alone, tally))
    idle_after = wait_idle(args.url, 10)
    rss_after = resident_bytes(pid)
    stats = get_json(args.url, "/stats")
    latencies.sort()
    report = {
        "streams": args.streams, "seconds": args.seconds, "ends": tally,
        "health_ms": {"n": len(latencies), "p50": round(statistics.median(latencies), 2),
                      "p99": round(latencies[int(len(latencies) * 0.99)], 2), "max": round(latencies[-1], 2)},
        "first_text_s": {"p50": round(statistics.median(firsts), 3), "max": round(max(firsts), 3)},
        "idle_after_s": idle_after, "row_blocks": stats["kv"]["row_blocks"],
        "rss_before": rss_before, "rss_after": rss_after,
    }
    wrong = [key for key in tally if key not in ("done", "left")]
    if idle_after is None or idle_after > 1.0:
        wrong.append("rows still ran a second after the last client left")
    if stats["kv"]["row_blocks"] != 0:
        wrong.append("blocks are held by rows")
    if rss_after > rss_before * 1.05 + 16e6:
        wrong.append("memory grew")
    if report["health_ms"]["p99"] > args.health_ms:
        wrong.append("/health was slow")
    report["wrong"] = wrong
    print(json.dumps(report))
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
