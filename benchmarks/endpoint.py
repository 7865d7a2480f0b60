"""Texts a second of a server's model: the encoder of endpoints against a loop of one request a text, in turns.

    python benchmarks/endpoint.py [--texts 512] [--rounds 5]

The server is that of the tests, in a process of its own on this machine, and needs no model: what is measured is the
protocol. It answers each request after a delay of 0 and of 20 ms. The loop keeps its connection open.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import runpy
import statistics
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from figures import record, spread

import ragidx
from ragidx.indexer.encoders.endpoint import AT_ONCE, REQUEST_TEXTS

SERVER = Path(__file__).parents[1] / "tests" / "embedding_server.py"
DELAYS = (0, 20)  # ms
WIDTH, WORDS = 384, 60


def serve(delay):
    """Answer until stdin is closed; the first line printed is the address."""
    kit = runpy.run_path(str(SERVER))
    with kit["running"]() as server:
        server.width = WIDTH
        server.always = kit["after"](delay / 1000)
        print(server.url, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def served(delay):
    """The address of a server; its process ends with the block, which closes its stdin."""
    command = [sys.executable, __file__, "--serve", str(delay)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()


def one_by_one(url, texts):
    """(n, width), a request a text."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc)
    found = []
    for text in texts:
        body = json.dumps({"model": "m", "input": [text]})
        connection.request("POST", f"{place.path}/embeddings", body, {"Content-Type": "application/json"})
        found.append(json.loads(connection.getresponse().read())["data"][0]["embedding"])
    connection.close()
    return np.array(found, np.float32)


def measure(delay, texts, rounds):
    """Ratios and rates. Each text is asked for once before, since the server keeps what it needs of a word."""
    rates = {"one by one": [], "ragidx": []}
    with served(delay) as url:
        encoder = ragidx.load_encoder("openai:m", endpoint=url)
        ways = {"one by one": lambda some: one_by_one(url, some), "ragidx": encoder.encode_document}
        encoder.encode_document(texts)
        for _ in range(rounds):
            found = []
            for name, encode in ways.items():
                started = time.perf_counter()
                found.append(encode(texts))
                rates[name].append(len(texts) / (time.perf_counter() - started))
            np.testing.assert_array_equal(*found)
    ratios = [ours / theirs for theirs, ours in zip(*rates.values(), strict=True)]
    return {
        "ratio": {name: round(value, 2) for name, value in spread(ratios).items()},
        **{f"{name} texts/s": round(statistics.median(values)) for name, values in rates.items()},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve)
        return
    rng = random.Random(0)
    texts = [" ".join(f"word{rng.randrange(300)}" for _ in range(WORDS)) for _ in range(arguments.texts)]
    record(
        "endpoint throughput against one request a text",
        {f"{delay} ms": measure(delay, texts, arguments.rounds) for delay in DELAYS},
        texts=arguments.texts,
        words=WORDS,
        dim=WIDTH,
        request_texts=REQUEST_TEXTS,
        at_once=AT_ONCE,
    )


if __name__ == "__main__":
    main()
