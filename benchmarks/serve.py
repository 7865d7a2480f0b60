"""The service under load: milliseconds and questions a second, beside the same questions in the process.

    python benchmarks/serve.py --index DIR --queries FILE [--clients 1 8 50] [--seconds 60] [--mode hybrid]
        [--vectors FILE.npy] [--commits S] [--requests N] [--puts] [--name NAME]

Server and clients share the machine; a client asks again when it has its answer, over one connection. `--vectors` asks
`/v1/vector`. `--commits S` adds a document every S seconds meanwhile, in this process, to a copy of the index.
`--requests N` asks N times by 8 clients instead, and gives the memory of the server after a tenth and after all of
them. `--puts` adds documents of a paragraph, to a copy of the index; each is on the disk when it is answered. Adds a
row to figures.jsonl.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from figures import record

import ragidx
from ragidx.corpora.evalsets import load_queries

TOKEN = "of-a-benchmark-" + "0" * 32


def bodies(arguments):
    """What is asked: a path and bodies."""
    if arguments.vectors is not None:
        rows = np.load(arguments.vectors)[:1000]
        return "/v1/vector", [json.dumps({"vectors": [row.tolist()]}).encode() for row in rows.astype(float)]
    texts = list(load_queries(arguments.queries).values())
    return "/v1/search", [json.dumps({"query": text, "mode": arguments.mode}).encode() for text in texts]


def post(path, body, method="POST"):
    """A whole request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {TOKEN}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def client(port, asked, until, spent, statuses, generations):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while until(len(spent)):
        request = next(asked)
        started = time.perf_counter()
        writer.write(request)
        received = (await reader.readuntil(b"\r\n\r\n")).decode()
        text = await reader.readexactly(int(re.search(r"(?i)content-length: (\d+)", received)[1]))
        spent.append(time.perf_counter() - started)
        status = int(received.split(" ", 2)[1])
        statuses[status] += 1
        if status == 200 and b'"generation":' in text:  # of no other server
            generations.add(json.loads(text)["generation"])
        elif status == 503:
            await asyncio.sleep(0.1)
    writer.close()


def load(port, asked, n_clients, until):
    """Milliseconds by quantile, questions a second, statuses, of requests that are asked again and again."""
    spent, statuses, generations = [], Counter(), set()
    turns = itertools.cycle(random.Random(0).sample(asked, len(asked)))

    async def all_of_them():
        clients = (client(port, turns, until, spent, statuses, generations) for _ in range(n_clients))
        await asyncio.gather(*clients)

    started = time.perf_counter()
    asyncio.run(all_of_them())
    seconds = time.perf_counter() - started
    p50, p95, p99 = np.quantile(spent, (0.5, 0.95, 0.99)) * 1000
    found = {"p50 ms": round(p50, 2), "p95 ms": round(p95, 2), "p99 ms": round(p99, 2)}
    found |= {"questions/s": round(len(spent) / seconds, 1), "statuses": {str(k): v for k, v in statuses.items()}}
    return found | {"generations": len(generations)}


def in_process(index, arguments, asked, seconds):
    """The same questions of `Index.search`."""
    opened, spent = ragidx.Index(index), []
    parsed = [json.loads(body) for body in asked]
    end = time.perf_counter() + seconds
    for body in itertools.cycle(parsed):
        started = time.perf_counter()
        if "vectors" in body:
            opened.search_vectors(body["vectors"])
        else:
            opened.search(body["query"], mode=arguments.mode)
        spent.append(time.perf_counter() - started)
        if time.perf_counter() > end:
            return round(float(np.quantile(spent[len(spent) // 10 :], 0.5)) * 1000, 2)


def resident(pid):
    """MiB of a process."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) // 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--name", help="of the index, for the row")
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--mode")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 50])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--commits", type=float)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--puts", action="store_true")
    arguments = parser.parse_args()
    path, asked = bodies(arguments)
    requests = [post(path, body) for body in asked]
    warm, options = requests, []
    if arguments.puts:
        texts = (
            json.dumps({"text": f"Note {n}. " + "It was read, and put away with the others. " * 10})
            for n in range(50_000)
        )
        requests = [post(f"/v1/documents/n{n}", text.encode(), "PUT") for n, text in enumerate(texts)]
        options = ["--writable"]
    index = arguments.index
    if arguments.commits or arguments.puts:
        index = Path(tempfile.mkdtemp()) / "index"
        shutil.copytree(arguments.index, index)
    values = (
        {}
        if arguments.requests or arguments.puts
        else {"in the process, p50 ms": in_process(index, arguments, asked, 5)}
    )
    command = [sys.executable, "-m", "ragidx", "serve", "--index", f"i={index}", "--port", "0", *options]
    own = os.environ | {"RAGIDX_TOKEN": TOKEN}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=own) as server:
        port = int(re.search(r":(\d+)  ", server.stderr.readline())[1])
        threading.Thread(target=server.stderr.read, daemon=True).start()
        client_ = ragidx.Client(f"http://127.0.0.1:{port}", token=TOKEN)
        while not client_.info()["indexes"][0]["ready"]:
            time.sleep(0.1)
        load(port, warm, 1, lambda n: n < 50)
        ended = threading.Event()
        if arguments.commits:
            threading.Thread(target=commit, args=(index, arguments.commits, ended), daemon=True).start()
        if arguments.requests:
            tenth = load(port, requests, 8, lambda n: n < arguments.requests // 10)
            before = resident(server.pid)
            rest = load(port, requests, 8, lambda n: n < arguments.requests * 9 // 10)
            values = {
                "MiB after a tenth": before,
                "MiB after all": resident(server.pid),
                "requests": arguments.requests,
            }
            values["statuses"] = {k: tenth["statuses"].get(k, 0) + n for k, n in rest["statuses"].items()}
        for n_clients in () if arguments.requests else arguments.clients:
            end = time.perf_counter() + arguments.seconds
            key = f"{n_clients} client{'s' * (n_clients > 1)}"
            values[key] = load(port, requests, n_clients, lambda n, end=end: time.perf_counter() < end)
        ended.set()
        server.terminate()
    name = f"{arguments.name}{', commits' * bool(arguments.commits)}{', puts' * arguments.puts}"
    record("serve", values, index=name, chunks=ragidx.Index(index).info().n_chunks, mode=arguments.mode)


def commit(index, seconds, ended):
    """A document every so many seconds."""
    with ragidx.Index(index) as opened:
        for number in itertools.count():
            if ended.wait(seconds):
                return
            opened.add([ragidx.Document(f"new-{number}", f"A text that is new, number {number}.")])


if __name__ == "__main__":
    main()
