"""The settings of a service, and what is wrong with them; read before anything is imported or opened."""
# annotations are objects here, not text: the options of the command line are made of them

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from ragidx.corpora.addresses import hidden
from ragidx.corpora.errors import SpecError
from ragidx.indexer.model_files import expanded
from ragidx.indexer.options import Option

TOKEN = "RAGIDX_TOKEN"  # in the environment
LEAST_TOKEN = 32  # characters
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_run = partial(Option, group="Run")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a service is started; `token`: what each request must bear, where it is not empty.

    A proxy in front must close a connection before `keep_alive_s`, or it sends a request into one that is being closed;
    most do so after 60.
    """

    token: str = ""
    host: Annotated[str, _run("H", "Where it listens.")] = "127.0.0.1"
    port: Annotated[int, _run("N", "0 takes any free one.", least=0, most=65_535)] = 8411
    allow_hosts: Annotated[Sequence[str], _run("NAME", "Another name that it is called by.", typed="allow-host")] = ()
    writable: Annotated[bool, _run(None, "Let documents be added and deleted; needs a token.")] = False
    rerank: Annotated[
        str | None, Option("MODEL", "A model that reads the best, for requests that ask for it.", "Reranking")
    ] = None
    deadline_s: Annotated[float, _run("S", "Seconds that a request may take.", typed="deadline")] = 30.0
    queue: Annotated[int, _run("N", "Requests that are worked on at once; those beyond get 503.", least=1)] = 128
    keep_alive_s: Annotated[
        int,
        _run(
            "S",
            "Seconds for which a connection stays open without a request: more than a proxy in front keeps its own.",
            typed="keep-alive",
            least=1,
            most=86_400,
        ),
    ] = 75
    log_queries: Annotated[bool, _run(None, "Write questions to the log.")] = False

    def __post_init__(self) -> None:
        for name in self.allow_hosts:
            if not _HOST.fullmatch(name):
                raise SpecError(f"{name!r} is no name of a host", "without http:// and port", where="`allow_host`")
        if not 0.1 <= self.deadline_s < math.inf:
            raise SpecError(f"deadline={self.deadline_s} is no time", "give seconds, such as 30", where="`deadline`")
        _check_token(self.token, "`token_file`")
        if not self.token and (self.writable or self.host not in LOOPBACK):
            what, could = ("`writable`", "change") if self.writable else (f"host {self.host}", "read")
            raise SpecError(
                f"{what} needs a token: whoever reaches the port could {could} the index",
                f"put one of {LEAST_TOKEN} characters or more in a file, and name it with `token_file`; or set {TOKEN}",
            )


def _check_token(token: str, where: str) -> None:
    if token and (len(token) < LEAST_TOKEN or not _TOKEN.fullmatch(token)):
        raise SpecError(
            f"the token has {len(token)} characters, or some that a header cannot hold",
            f"make one of {LEAST_TOKEN} or more: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
            where=where,
        )


def token_from(file: Path | None) -> str:
    """The token in a file, else in the environment; empty where there is none.

    Raises:
        SpecError: the file cannot be read, or is empty; or the one in the environment is too short.
    """
    if file is None:
        token = os.environ.get(TOKEN, "").strip()
        _check_token(token, TOKEN)
        return token
    try:
        text = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as fault:
        raise SpecError(f"the token cannot be read: {fault}", "name a text file with `token_file`") from fault
    if not text:
        raise SpecError("the file is empty", f"write a token of {LEAST_TOKEN} characters or more", where=str(file))
    return text


def named(indexes: Sequence[str]) -> dict[str, Path | str]:
    """Folders by name: `NAME=DIR`, or the folder's own name; a target of an engine is text, and needs a name.

    >>> named(["docs=/data/index", "/data/papers"])
    {'docs': PosixPath('/data/index'), 'papers': PosixPath('/data/papers')}

    Raises:
        SpecError: a name is no name, or two are the same.
    """
    from ragidx.pipelines.integrations.engines.target import is_target

    found: dict[str, Path | str] = {}
    for text in indexes:
        name, sign, folder = text.partition("=")
        if not sign or "/" in name:  # a folder may have a sign of equality, too
            name, folder = "", text
        path: Path | str = folder if name and is_target(folder) else expanded(folder)
        name = name or expanded(folder).resolve().name
        if not _NAME.fullmatch(name):
            hint = "name it: NAME=DIR, of letters, digits, '.', '_' and '-'"
            if is_target(text) or "@" in text or is_target(folder):  # the name may be a part of a password
                raise SpecError("a target needs a name", "give it one: NAME=TARGET", where=hidden(folder))
            raise SpecError(f"{name!r} cannot be the name of an index", hint, where=text)
        if name in found:
            raise SpecError(f"two indexes are called {name}", "name one of them: NAME=DIR", where=text)
        found[name] = path
    return found
