"""Every command for any user: without a home or an entry in the table of users, in the locale C, where files are
read-only, where there is no temporary folder, where that or the disk is full. It answers, or says so in one block.

Another user takes root (setpriv), or a user namespace (unshare); root itself may read and write what modes forbid.
"""

from __future__ import annotations

import errno
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import ragidx
from ragidx.pipelines.cli.main import every_command

from ..conftest import Done

CONFIG = "config.json"
DRIVER = Path(__file__).with_name("any_user.py")
COMMANDS = {  # in an order in which each has something to do
    "build": ["corpus"],
    "rollback": ["1"],
    "init": [],
    "add": ["new.jsonl"],
    "add-source": ["more"],
    "sources": [],
    "remove-source": ["more"],
    "query": ["who signed the lease of the house?"],
    "serve": ["--port", "0"],
    "mcp": [],
    "info": [],
    "models": [],
    "verify": [],
    "history": [],
    "doctor": [],
    "export": ["--to", "parquet:out.parquet"],
    "delete": ["--id", "lease.txt"],
    "compact": [],
    "reindex": ["flat", "--index-type", "flat"],
    "upgrade": ["--dim", "128", "--force"],
    "adapt": ["--force", "--epochs", "1"],
    "shrink": ["--dim", "64"],
    "lens": ["lamp", "--model", "mini-decoder"],
    "evaluate": ["judged", "--filter", "none"],
    "sweep": ["judged", "--dim", "64"],
    "tune": ["judged", "--filter", "none"],
    "demo": [],
    "train head": ["mini", "--pairs", "pairs.jsonl", "--kind", "whitening", "--force"],
}
BRIEFLY = [*("--limit", "40", "--batch", "16", "--read-tokens", "16", "--rank", "2", "--dtype", "float32", "--force")]
LONG = {
    "train pooling": [*("mini-decoder", "--pairs", "pairs.jsonl", "--epochs", "1", "--latents", "2", "--heads", "2"),
                      *("--head-width", "8", "--force")],
    "train questions": ["mini-decoder", "--text", "texts.jsonl", "--epochs", "1", "--out", "table"],
    "train mini": [*("--text", "texts.jsonl", "--teacher", "mini-decoder", "--dim", "32", "--stored", "8"),
                   *("--out", "small")],
    "train contrastive": [*("mini-decoder", "--method", "prompteol", "--pairs", "pairs.jsonl", "--out", "made"),
                          *BRIEFLY],
    "train simcse": [*("mini-decoder", "--method", "prompteol", "--text", "notes.jsonl", "--out", "simcse"), *BRIEFLY],
    "train mntp": ["mini-decoder", "--text", "notes.jsonl", "--out", "mntp", *BRIEFLY],
    "train export": ["made", "exported"],
}  # fmt: skip
WRITE = {  # files of the user, so that they refuse where all is read-only
    *("build", "init", "add", "add-source", "remove-source", "export", "delete", "compact", "reindex", "upgrade"),
    *("adapt", "shrink", "rollback", "train head", *LONG),
}
TEMPORARY = {"evaluate", "sweep", "tune", "demo"}  # need room for temporary files, and write nothing else
NEEDING = TEMPORARY | {"upgrade", "adapt", "train head"}
IMPORTED = (  # by several commands
    *("cli.build", "ingest.build", "ingest.workers.process", "serve.http_server", "serve.agents", "index"),
    *("experiments.evaluate.evaluate", "experiments.tune.tune"),
    *("experiments.trials.upgrade", "experiments.trials.adapt"),
)
TRAINING = ("transformers.trainer", "sentence_transformers", "peft", "ragidx.pipelines.experiments.train.decoders")
ERROR = re.compile(r"(?m)^(Error: |Usage: )")
NEVER = re.compile(r"Traceback|a bug in ragidx|Exception ignored|Warning:|Matplotlib created")


def test_every_command_has_its_row() -> None:
    assert {*COMMANDS, *LONG} == set(every_command())


def _text(number: int) -> str:
    things, places = ("lamp", "bridge", "violin", "harbour", "glacier"), ("Lisbon", "Oslo", "Kyoto", "Lima", "Cairo")
    thing, place = things[number // 5 % 5], places[number % 5]
    return (
        f"The {thing} of {place} was made in {1800 + number}. It is number {number} of the old list of the "
        f"{things[number * 3 % 5]}. Nobody in {places[number * 2 % 5]} knows who keeps it now."
    )


def _lines(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands need, and `ragidx-index` in its second generation."""
    folder = tmp_path_factory.mktemp("world")
    notes = [{"id": f"n{n}", "text": _text(n), "year": 1800 + n} for n in range(60)]
    _lines(folder / "corpus" / "notes.jsonl", notes)
    _lines(folder / "notes.jsonl", notes)
    _lines(folder / "texts.jsonl", [{"text": f"The lamp has the number {n}."} for n in range(1100)])
    _lines(folder / "pairs.jsonl", [{"query": f"lamp {n}", "positive": f"The lamp has number {n}."} for n in range(60)])
    _lines(folder / "new.jsonl", [{"id": "new", "text": "Bees dance to tell where the flowers are."}])
    (folder / "more").mkdir()
    (folder / "more" / "mill.md").write_text("The old mill stands where the river reaches the sea.\n")
    _lines(folder / "judged" / "corpus.jsonl", [{"_id": f"d{n}", "text": _text(n)} for n in range(25)])
    _lines(folder / "judged" / "queries.jsonl", [{"_id": f"q{n}", "text": _text(n)[:30]} for n in range(25)])
    (folder / "judged" / "qrels").mkdir()
    judgements = [f"q{n}\td{n}\t1\n" for n in range(25)]
    (folder / "judged" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judgements))
    for name, text in {
        "lease.txt": "The lease of the house by the lake was signed by Ada Lovelace in 1840.\n",
        "Größe/塔.md": "# 東京タワー\n\nThe tower in Tokyo, 東京タワー, is orange; a naïve café is in it.\n",
    }.items():
        path = folder / "corpus" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        with ragidx.build(folder / "corpus", folder / "ragidx-index"):
            pass
    (folder / "corpus" / "mill.md").write_text("The mill by the river is old.\n")
    return folder


@pytest.fixture
def place(world: Path) -> Iterator[Path]:
    """A copy of `world` that other users can reach, which they cannot where pytest keeps its folders."""
    folder = Path(tempfile.mkdtemp(prefix="ragidx-any-user-"))
    folder.chmod(0o755)
    shutil.copytree(world, folder / "work")
    yield folder
    shutil.rmtree(folder)


IS_ROOT = os.geteuid() == 0
UID = 10001  # of no entry


def _as_nobody() -> list[str]:
    """What runs the rest of a command line as a user without an entry; root's files stay another's then."""
    if not IS_ROOT:
        return ["unshare", "--user", f"--map-user={UID}", f"--map-group={UID}"]
    user = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups"]
    if _runs(user):
        return user  # else the interpreter is in a folder of root's
    return [*user, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


def _runs(through: Sequence[str]) -> bool:
    """Whether it starts this interpreter, with its own library: where that may not be read, it takes another's."""
    code = "import numpy, os, ragidx.__main__; print(os.__file__, end='')"
    return _output([*through, sys.executable, "-c", code]) == os.__file__.encode()


def _output(command: Sequence[str]) -> bytes | None:
    try:
        return subprocess.run(command, check=True, capture_output=True, cwd="/").stdout
    except (OSError, subprocess.CalledProcessError):
        return None


@pytest.fixture(scope="module")
def nobody() -> list[str]:
    through = _as_nobody()
    if not _runs(through):
        pytest.skip("no other user can be had: by setpriv as root, or by `unshare --user --map-user`")
    return through


Situation = Callable[..., dict[str, Done]]


@pytest.fixture
def run_all(place: Path, nobody: list[str]) -> Situation:
    """`run_all(names, mounts="", within="work", own=True, **environment)`: what the commands leave behind, by name.

    `mounts` is a script that changes the mounts for them alone; `limit` is what else stands in front of them.
    """

    def call(
        commands: Mapping[str, Sequence[str]],
        *,
        mounts: str = "",
        limit: Sequence[str] = (),
        within: str = "work",
        own: bool = True,
        **environment: str,
    ) -> dict[str, Done]:
        through = [*nobody, *limit]
        if mounts:
            unshare = ["unshare", "--mount" if IS_ROOT else "-rm"]
            if _output([*unshare, "true"]) is None:
                pytest.skip("no mounts of our own here: unshare --mount is not allowed")
            through = [*unshare, "sh", "-c", f'set -e; {mounts}; cd "$PWD"; exec "$@"', "sh", *through]
        if own and IS_ROOT:
            subprocess.run(["chown", "-R", str(UID), str(place / "work")], check=True)
        imported = [f"ragidx.pipelines.{name}" for name in IMPORTED]
        wanted = {"import": [*imported, *(TRAINING if LONG.keys() & commands.keys() else ())], "commands": commands}
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        done = subprocess.run(
            [*through, sys.executable, str(DRIVER), json.dumps(wanted)],
            cwd=place / within,
            env=kept | {"OMP_NUM_THREADS": "1"} | environment,
            capture_output=True,
            check=False,
        )
        assert done.stdout, done.stderr.decode()
        return {name: Done(*left) for name, left in json.loads(done.stdout).items()}

    return call


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub that has one model, of one file."""

    def do_GET(self) -> None:
        told: Any = {"_id": "1", "id": "o/n", "modelId": "o/n", "sha": "a" * 40, "siblings": [{"rfilename": CONFIG}]}
        if "/tree/" in self.path:
            told = [{"type": "file", "path": CONFIG, "size": 2, "oid": "b" * 40}]
        body = json.dumps(told if self.path.startswith("/api/") else {}).encode()
        self.send_response(200)
        for name, value in (("ETag", f'"{"b" * 40}"'), ("X-Repo-Commit", "a" * 40), ("Content-Length", len(body))):
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


def _check(found: Mapping[str, Done], refused: set[str]) -> None:
    """Each command answered, or said in one block why not, as `refused` promises."""
    wrong = {
        name: done
        for name, done in found.items()
        if NEVER.search(done.out + done.err)
        or (done.status != 0) != (name in refused)
        or (done.status != 0 and (done.status != 2 or len(ERROR.findall(done.err)) != 1))
    }
    assert not wrong, "\n".join(f"{name}: {done.status}\n{done.out}{done.err}" for name, done in wrong.items())
    if (served := found.get("serve")) is not None and served.status == 0:
        health, answer = served.out.splitlines()
        assert health.startswith("200 ")
        assert answer.startswith("200 ")
        assert "lease.txt" in answer


@pytest.mark.slow
def test_without_a_home_and_an_entry_and_in_a_locale_of_ascii_every_command_runs(
    run_all: Situation, place: Path
) -> None:
    found = run_all(COMMANDS | LONG, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")

    _check(found, refused=set())
    assert "none, as there is no home" in found["doctor"].out
    assert not (place / "work" / "~").exists()


@pytest.mark.slow
def test_a_home_that_cannot_be_written_changes_nothing(run_all: Situation, place: Path) -> None:
    (place / "home").mkdir(mode=0o555)  # the other commands run with one beside a full temporary folder

    found = run_all({name: COMMANDS[name] for name in (*sorted(NEEDING), "doctor")}, HOME=str(place / "home"))

    _check(found, refused=set())
    assert f"none, as {place}/home/.cache/ragidx cannot be written" in found["doctor"].out


@pytest.mark.slow
def test_the_folder_that_one_is_in_does_not_matter(run_all: Situation, place: Path) -> None:
    index = ["--index", str(place / "work" / "ragidx-index")]
    asked = {name: [*COMMANDS[name], *index] for name in ("query", "serve", "info", "sources", "verify", "delete")}

    found = run_all({"build": index} | asked | {"doctor": []}, within=".", LC_ALL="C", HOME="/nonexistent")

    _check(found, refused=set())
    assert f"{place}/work/corpus" in found["sources"].out


@pytest.mark.slow
def test_what_is_read_only_answers_and_says_that_it_cannot_be_written(run_all: Situation, place: Path) -> None:
    subprocess.run(["chmod", "-R", "a-w,a+rX", str(place / "work")], check=True)

    found = run_all(COMMANDS | LONG, own=False, HOME=str(place / "work"), RAGIDX_CACHE=str(place / "work" / "cache"))

    _check(found, refused=WRITE)


@pytest.mark.slow
def test_without_a_place_for_temporary_files_everything_is_read_only(run_all: Situation, place: Path) -> None:
    mounts = "".join(
        f"mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}; "
        for folder in dict.fromkeys(map(os.path.realpath, ("/tmp", "/var/tmp", "/dev/shm", place)))
    ).removesuffix("; ")

    found = run_all(COMMANDS, mounts=mounts)

    _check(found, refused=WRITE | TEMPORARY)
    assert found["demo"].err == (
        "Error: no folder for temporary files can be written\n  hint: name one that can: TMPDIR=DIR ragidx ...\n"
    )


@pytest.mark.slow
def test_a_temporary_folder_that_is_full_is_named_where_it_is_needed(run_all: Situation, place: Path) -> None:
    (place / "full").mkdir()
    (place / "home").mkdir(mode=0o555)
    mounts = f"mount -t tmpfs -o size=16k,mode=1777 none {place}/full"

    found = run_all(COMMANDS, mounts=mounts, TMPDIR=str(place / "full"), HOME=str(place / "home"))

    _check(found, refused=NEEDING)
    for name in NEEDING:
        assert "the temporary folder: cannot write: No space left on device\n  hint: free some" in found[name].err


@pytest.mark.slow
def test_a_disk_that_is_full_is_named(run_all: Situation) -> None:
    found = run_all(COMMANDS, limit=["prlimit", "--fsize=600"])

    _check(found, refused=WRITE | TEMPORARY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("home", "told"),
    [
        ({}, "there is no home to keep 'o/n' in"),
        ({"HOME": "/proc/sys"}, "'o/n' cannot be kept at /proc/sys/.cache: {}"),
    ],
)
def test_a_model_of_the_hub_that_cannot_be_kept_names_the_variable(
    home: dict[str, str], told: str, run_all: Situation
) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{hub.server_port}"
        done = run_all({"build": ["more", "--index", "new", "--model", "o/n"]}, HF_ENDPOINT=address, **home)["build"]
        hub.shutdown()

    assert (done.status, done.out) == (2, "")
    reason = os.strerror(errno.ENOENT)
    assert done.err.endswith(
        f"Error: --model: {told.format(reason)}\n  hint: name a folder that can be written: HF_HOME=DIR ragidx ...\n"
    )
