"""The service beside the servers of Chroma and txtai: the same vectors, the same questions, the same clients, in turns.

    python benchmarks/servers.py --real vectors.npy --rivals PYTHON [--rows 100000] [--clients 1 8 50] [--seconds 4]
        [--rounds 5] [--servers ours empty chroma txtai]

PYTHON is the interpreter of an environment with the rivals: python3 -m venv rivals && rivals/bin/pip install chromadb
'txtai[api]'. Each server has its own process on this machine, a graph or an index as it makes it by default, and the
same rows by number; a question is the vector of a row that is in none of them. txtai takes no vectors over HTTP: the
question names a row, and a function in its server finds the vector. `empty` is a route of our server's libraries that
reads the same body and answers with the bytes of one of our answers. ann_recall@10 is against the exact nearest. All
servers are made first; in each round each is asked for some seconds, so that what else the machine does falls on all of
them. Figures are medians of the rounds; CPU is the server's, user and system. Adds a row to figures.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from importlib.metadata import version
from pathlib import Path

import numpy as np
from figures import record
from grow import load as unit_vectors
from serve import load, post, resident

import ragidx
from ragidx.pipelines.vectors import RowWriter

K = 10
CHROMA = """
import sys, chromadb, numpy as np
rows = np.load(sys.argv[1] + "/rows.npy")
made = chromadb.PersistentClient(sys.argv[1] + "/chroma").create_collection("rows", metadata={"hnsw:space": "cosine"})
for start in range(0, len(rows), 5000):
    part = rows[start : start + 5000]
    made.add(ids=[str(n) for n in range(start, start + len(part))], embeddings=part)
print(made.id, chromadb.__version__)
"""
TXTAI = """
import os, sys, numpy as np
from importlib.metadata import version
from txtai.embeddings import Embeddings
os.chdir(sys.argv[1])
sys.path.insert(0, ".")
rows = np.load("rows.npy")
made = Embeddings({"method": "external", "transform": "lookup.vectors", "content": False})
made.index((n, rows[n], None) for n in range(len(rows)))
made.save("txtai")
print(version("txtai"))
"""
EMPTY = """
import sys, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
said = open(sys.argv[1] + "/answer.json", "rb").read()
async def answer(request):
    await request.body()
    return Response(said, media_type="application/json")
app = Starlette(routes=[Route("/v1/vector", answer, methods=["POST"])])
uvicorn.run(app, port=8773, http="h11", access_log=False, log_level="warning")
"""
LOOKUP = """
import numpy as np
QUESTIONS = np.load("questions.npy")
def vectors(texts):
    return np.array([QUESTIONS[int(text)] if isinstance(text, str) else text for text in texts], np.float32)
"""


@contextlib.contextmanager
def ours(folder, rows, questions, _):
    with RowWriter(folder / "ours", rows.shape[1]) as writer:
        for start in range(0, len(rows), 20_000):
            part = rows[start : start + 20_000]
            writer.add_vectors([str(n) for n in range(start, start + len(part))], part)
        writer.commit()
    command = [sys.executable, "-m", "ragidx", "serve", "--index", f"i={folder / 'ours'}", "--port", "0"]
    with started(command, folder) as server:
        port = int(re.search(r":(\d+)  ", server.stderr.readline())[1])
        threading.Thread(target=server.stderr.read, daemon=True).start()
        asked = [post("/v1/vector", json.dumps({"vectors": [row.tolist()], "k": K}).encode()) for row in questions]
        (folder / "answer.json").write_text(json.dumps(answered(port, asked[0]), separators=(",", ":")))
        yield server, port, asked, ids_of_ours, ragidx.__version__


def ids_of_ours(answer):
    return [int(hit["doc_id"]) for hit in answer["answers"][0]["hits"]]


@contextlib.contextmanager
def empty(folder, rows, questions, _):
    with started([sys.executable, "-c", EMPTY, str(folder)], folder) as server:
        asked = [post("/v1/vector", json.dumps({"vectors": [row.tolist()], "k": K}).encode()) for row in questions]
        yield server, 8773, asked, ids_of_ours, version("starlette")


@contextlib.contextmanager
def chroma(folder, rows, questions, python):
    done = subprocess.run([python, "-c", CHROMA, str(folder)], check=True, capture_output=True, text=True)
    name, known = done.stdout.split()
    program = str(Path(python).with_name("chroma"))
    with started([program, "run", "--path", str(folder / "chroma"), "--port", "8771"], folder) as server:
        place = f"/api/v2/tenants/default_tenant/databases/default_database/collections/{name}/query"
        bodies = ({"query_embeddings": [row.tolist()], "n_results": K, "include": ["distances"]} for row in questions)
        asked = [post(place, json.dumps(body).encode()) for body in bodies]
        yield server, 8771, asked, lambda answer: [int(one) for one in answer["ids"][0]], known


@contextlib.contextmanager
def txtai(folder, rows, questions, python):
    (folder / "lookup.py").write_text(LOOKUP)
    allowed = {"ALLOW_RESOLVE_TRANSFORM": "True"}  # functions of one's own, which it refuses by default
    command = [python, "-c", TXTAI, str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | allowed)
    known = done.stdout.split()[-1]
    (folder / "txtai.yml").write_text("path: txtai\nwritable: false\nembeddings:\n  path: null\n")
    command = [python, "-m", "uvicorn", "txtai.api:app", "--port", "8772", "--log-level", "warning"]
    allowed |= {"CONFIG": str(folder / "txtai.yml"), "PYTHONPATH": str(folder)}
    with started(command, folder, **allowed) as server:
        head = "HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        asked = [f"GET /search?query={number}&limit={K} {head}".encode() for number in range(len(questions))]
        yield server, 8772, asked, lambda answer: [int(one["id"]) for one in answer], known


@contextlib.contextmanager
def started(command, folder, **environment):
    """A server, until the end."""
    own = os.environ | environment
    with subprocess.Popen(
        command, cwd=folder, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as it:
        try:
            yield it
        finally:
            it.terminate()


def answered(port, request):
    """The answer to one request, when the server is there."""
    head, _, body = request.partition(b"\r\n\r\n")
    path = head.split(b" ")[1].decode()
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body or None, {"Content-Type": "application/json"})
    end = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return json.loads(answer.read())
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def turn(server, port, asked, ids_of, known, n_clients, seconds):
    """One server under load for some seconds."""
    before, end = processor_ms(server.pid), time.perf_counter() + seconds
    said = load(port, asked, n_clients, lambda _: time.perf_counter() < end)
    said.pop("generations")
    said["CPU ms"] = round((processor_ms(server.pid) - before) / sum(said["statuses"].values()), 3)
    return said


def medians(turns):
    """The median of each figure, and all statuses."""
    found = {key: round(float(np.median([one[key] for one in turns])), 3) for key in turns[0] if key != "statuses"}
    return found | {"statuses": dict(sum((Counter(one["statuses"]) for one in turns), Counter()))}


def processor_ms(pid):
    """Milliseconds of the processor that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=Path, required=True)
    parser.add_argument("--rivals", required=True, help="the Python of their environment")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 50])
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--servers", nargs="+", choices=["ours", "empty", "chroma", "txtai"])
    arguments = parser.parse_args()
    every = unit_vectors(arguments.real)
    every = every[np.random.default_rng(0).permutation(len(every))[: arguments.rows + 1000]]
    rows, questions = every[: arguments.rows], every[arguments.rows :]
    nearest = np.argsort(-(questions @ rows.T), axis=1)[:, :K]
    values = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        np.save(folder / "rows.npy", rows)
        np.save(folder / "questions.npy", questions)
        makers = {one.__name__: one for one in (ours, empty, chroma, txtai)}
        with contextlib.ExitStack() as held:
            servers = {}
            for asked_for in arguments.servers or makers:
                begun = time.perf_counter()
                made = held.enter_context(makers[asked_for](folder, rows, questions, arguments.rivals))
                _, port, asked, ids_of, known = made
                answered(port, asked[0])
                found = {"version": known, "made and started s": round(time.perf_counter() - begun, 1)}
                right = [np.isin(ids_of(answered(port, asked[n])), nearest[n]).mean() for n in range(200)]
                found["recall@10"] = round(float(np.mean(right)), 4)
                load(port, asked, 8, lambda n: n < 1000)
                name = "ragidx" if asked_for == "ours" else asked_for
                servers[name], values[name] = made, found
            for n_clients in arguments.clients:
                rounds = [
                    {name: turn(*one, n_clients, arguments.seconds) for name, one in servers.items()}
                    for _ in range(arguments.rounds)
                ]
                for name, found in values.items():
                    found[f"{n_clients} clients"] = medians([one[name] for one in rounds])
            for name, (server, *_) in servers.items():
                values[name]["MiB"] = resident(server.pid)
        print(json.dumps(values, indent=1), file=sys.stderr)
    record("servers", values, rows=arguments.rows, dimensions=rows.shape[1], cores=len(os.sched_getaffinity(0)))


if __name__ == "__main__":
    main()
