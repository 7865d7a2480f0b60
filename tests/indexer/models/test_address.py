"""Addresses of servers: what is typed, what an index keeps, and who gets a key."""

from __future__ import annotations

import pytest

from ragidx.corpora.errors import SpecError
from ragidx.indexer.models.address import Address, address_of, api_key, chosen_address

from ...raising import message_of

KEPT = "http://127.0.0.1:11434/v1/embeddings"
FAR = "https://api.example/v1/embeddings"


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("http://localhost:11434", "http://localhost:11434/v1/embeddings"),
        ("http://localhost:11434/", "http://localhost:11434/v1/embeddings"),
        ("http://[::1]:8080/v1/", "http://[::1]:8080/v1/embeddings"),
        ("https://api.example/proxy/v1", "https://api.example/proxy/v1/embeddings"),
        ("https://api.example/v1/embeddings", "https://api.example/v1/embeddings"),
        ("https://api.example/embeddings/", "https://api.example/embeddings"),
    ],
)
def test_an_address_ends_where_embeddings_are_made(typed: str, url: str) -> None:
    assert address_of(typed).url == url


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "localhost:11434",
        "ftp://host/v1",
        "http://",
        "http://host:port",
        "http://[::1",
        "http://hôte/v1",
        "http://a\nb",
        "http://a..b/v1",
        f"http://{'a' * 64}/v1",
    ],
)
def test_what_is_no_address_is_refused(typed: str) -> None:
    assert message_of(SpecError, lambda: address_of(typed)) == (
        f"`endpoint`: {typed!a} is no address of a server\n  hint: write it as `endpoint=http://127.0.0.1:11434/v1`"
    )


@pytest.mark.parametrize("typed", ["https://me:s3cret@host/v1", "https://host/v1?key=s3cret", "https://host/v1#s3cret"])
def test_an_address_with_a_secret_is_refused_and_not_shown(typed: str) -> None:
    assert message_of(SpecError, lambda: address_of(typed)) == (
        "`endpoint`: the address has more than host, port and path\n"
        "  hint: put a key into the environment variable RAGIDX_API_KEY, and nothing into the address"
    )


@pytest.mark.parametrize(
    ("url", "is_loopback"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]", True),
        ("http://localhost", True),
        ("http://LOCALHOST", True),
        ("http://0.0.0.0", False),
        ("http://10.0.0.1", False),
        ("http://127.1", False),
        ("http://2130706433", False),
        ("http://localhost.evil.example", False),
        ("http://127.0.0.1.evil.example", False),
    ],
)
def test_this_machine_has_few_names(url: str, is_loopback: bool) -> None:
    assert address_of(url).is_loopback == is_loopback


def test_a_named_address_comes_before_the_one_that_an_index_keeps() -> None:
    assert chosen_address("http://10.0.0.1", KEPT, "openai:m") == Address("http://10.0.0.1/v1/embeddings")
    assert chosen_address(None, KEPT, "openai:m") == Address(KEPT, named=False)


def test_of_an_index_another_machine_is_not_asked() -> None:
    assert message_of(SpecError, lambda: chosen_address(None, FAR, "openai:m")) == (
        f"`endpoint`: the index was made with the endpoint {FAR}, which is another machine\n"
        f"  hint: name it, if texts may go there: `endpoint={FAR}`"
    )


@pytest.mark.parametrize("kept", [None, 7, ["http://127.0.0.1"]])
def test_without_an_address_there_is_an_error(kept: object) -> None:
    assert message_of(SpecError, lambda: chosen_address(None, kept, "openai:m")) == (
        "`endpoint`: 'openai:m' is a model of a server, and no server is named\n"
        "  hint: name it, such as `endpoint=http://127.0.0.1:11434/v1`"
    )


def test_the_key_goes_to_named_addresses_and_that_of_openai_never_in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAGIDX_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", " general ")
    assert api_key(Address(FAR)) == api_key(Address(KEPT)) == "general"
    assert api_key(Address("http://10.0.0.1/v1/embeddings")) == ""
    assert api_key(Address(KEPT, named=False)) == ""

    monkeypatch.setenv("RAGIDX_API_KEY", "own")
    assert api_key(Address(FAR)) == api_key(Address("http://10.0.0.1/v1/embeddings")) == "own"
    assert api_key(Address(KEPT, named=False)) == ""


@pytest.mark.parametrize("key", ["two words", "line\nfeed", "schlüssel"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("RAGIDX_API_KEY", key)

    said = message_of(SpecError, lambda: api_key(Address(FAR)))

    assert said == "RAGIDX_API_KEY: the key has characters that no key has\n  hint: set it again"
