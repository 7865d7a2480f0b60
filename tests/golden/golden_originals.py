"""What the originals do that ragidx does not: their ids and spans, rebuilt here from the texts, for tests alone.

The product has no option for any of this; docs/exactness.md, "Where ragidx differs", names each trait and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from golden_cases import Case

from ragidx.indexer.prompts.rendering import Rendered, clean
from ragidx.indexer.prompts.tokenizer import TextTokenizer

_WRAPPED = {
    "meta-llama/Meta-Llama-3-8B-Instruct": ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
    "mistralai/Mistral-7B-Instruct-v0.2": ("[INST] ", " [/INST]"),
    "meta-llama/Llama-2-7b-chat-hf": ("[INST] ", " [/INST]"),
    "google/gemma-2-9b-it": ("<bos><start_of_turn>user\n", "<end_of_turn>"),
    "Qwen/Qwen2-1.5B-Instruct": ("<|im_start|>user\n", "<|im_end|>"),
    "Qwen/Qwen2-7B-Instruct": ("<|im_start|>user\n", "<|im_end|>"),
}
_ENDS = {"llama": " </s>", "mistral": " </s>", "gemma": "<eos>", "gemma2": "<eos>", "qwen2": "<|endoftext|>"}


def originals(case: Case) -> Iterator[list[Rendered]]:
    """Rows as the authors' code makes them, one list for each version of the libraries that they may have used."""
    if case.method == "echo":
        for with_bos in (False, True):
            yield [
                _echo(case.template[tag], values, case, with_bos)
                for values, tag in zip(case.variables, case.template_tag, strict=True)
            ]
    elif case.method == "embedfilter + echo":
        for with_bos in (False, True):
            yield [_filtered_echo(text, case, with_bos) for text in case.texts]
    elif case.method == "llm2vec":
        yield [_llm2vec(text, case) for text in case.texts]
    elif case.method == "embedfilter + prompteol":
        yield _middle_cut([_prompt(case, text) for text in case.texts], case.max_length)
    elif case.method in ("prompteol", "metaeol"):
        forms = case.template if isinstance(case.template, list) else [case.template]
        rows = [_prompt(case, text, form) for text in case.texts for form in forms]
        yield [_all(row) if str(case.pooling).startswith("sum") else row for row in rows]
    elif case.method.startswith("pooling-and-attention"):
        yield [_glued(text, case) for text in case.texts]


def _ids(tokenizer: TextTokenizer, text: str) -> list[int]:
    """The originals let a text spell special tokens."""
    return tokenizer.piece(text)


def _all(row: Rendered) -> Rendered:
    return Rendered(row.ids, ((0, len(row.ids)),))


def _echo(form: str, values: dict[str, str], case: Case, with_bos: bool) -> Rendered:
    """Each piece tokenised and cut alone; variables replaced one after the other."""
    tokenizer = case.tokenizer
    ids: list[int] = []
    spans: list[tuple[int, int]] = []
    for part in filter(None, re.split(r"(\{[^{}]*\})", form)):
        pooled = part.startswith("{") and not part.startswith("{!")
        text = part[1:-1].removeprefix("!") if part.startswith("{") else part
        for name, value in values.items():
            text = text.replace(f"%%{name}%%", value)
        own = _ids(tokenizer, text)
        if with_bos:
            own = tokenizer.prefix + own
        start = len(ids)
        ids += own[: case.max_length] if case.max_length else own
        if pooled:
            spans.append((start, len(ids)))
    return Rendered(ids, tuple(spans))


def _filtered_echo(text: str, case: Case, with_bos: bool) -> Rendered:
    """BOS, literal, text, literal, text, EOS; the span is the second copy and the EOS."""
    tokenizer = case.tokenizer
    before = tokenizer.prefix if with_bos else []
    first, middle, _ = case.template.split("{text}")
    own = (before + _ids(tokenizer, text))[: case.max_length]
    start = tokenizer.bos if tokenizer.bos is not None else tokenizer.eos
    ids = [start, *before, *_ids(tokenizer, first), *own, *before, *_ids(tokenizer, middle)]
    return Rendered([*ids, *own, tokenizer.eos], ((len(ids), len(ids) + len(own) + 1),))


def _llm2vec(text: str, case: Case) -> Rendered:
    """One string cut on its right; the span is as long as the text alone, wherever that reaches to."""
    tokenizer = case.tokenizer
    text = _by_words(text, tokenizer, case.doc_max_length)
    instruction = (case.instruction or "").strip()
    whole = f"{instruction} {case.separator}{text}" if instruction else case.separator + text
    if case.name_or_path in _WRAPPED:
        before, after = _WRAPPED[case.name_or_path]
        whole = before + whole.strip() + after
    # For the one name that returns early, no end is put behind the text; one other has an end of its own.
    if case.pooling == "eos_token" and case.name_or_path != "meta-llama/Meta-Llama-3-8B-Instruct":
        named = case.name_or_path == "meta-llama/Meta-Llama-3-8B"
        whole = whole.strip() + ("<|end_of_text|>" if named else _ENDS.get(case.model_family, ""))
    span = whole.split(case.separator)[1]
    ids = tokenizer.prefix + _ids(tokenizer, whole.replace(case.separator, ""))
    ids = ids[: case.max_length] if case.max_length else ids
    n_text = len(_ids(tokenizer, span)[: case.max_length])
    pooled: tuple[tuple[int, int], ...] = ((max(0, len(ids) - n_text), len(ids)),) if n_text else ()
    if case.skip_instruction is False:
        pooled = ((0, len(ids)),)
    if case.pooling in ("eos_token", "last_token"):
        pooled = ((len(ids) - 1, len(ids)),)
    elif case.pooling == "bos_token":
        pooled = ((ids.index(tokenizer.bos), ids.index(tokenizer.bos) + 1),)
    return Rendered(ids, pooled)


def _by_words(text: str, tokenizer: TextTokenizer, limit: int | None) -> str:
    while limit is not None and (n_ids := len(_ids(tokenizer, text))) > limit:
        words = text.split()
        text = " ".join(words[: int(len(words) * limit / n_ids)])
    return text


def _prompt(case: Case, text: str, form: str | None = None) -> Rendered:
    """A finished prompt as one string; its last token is pooled."""
    tokenizer = case.tokenizer
    if case.method == "embedfilter + prompteol":
        ids = tokenizer.prefix + _ids(tokenizer, case.template.replace("{text}", text))
        return Rendered(ids, ((len(ids) - 1, len(ids)),))
    text = clean(text)
    if case.max_length == 500:
        text = tokenizer.pieces.decode(_ids(tokenizer, text)[:500], skip_special_tokens=True)
    form = (form or case.template).replace("*cls*", "").replace("*sep+*", "")
    if "*sent_0*" in form:
        form = form.replace("*sent_0*", "*sent 0*").replace("_", " ")
    ids = tokenizer.prefix + _ids(tokenizer, form.replace("*sent 0*", text).strip())
    ids = ids[:512] if case.max_length == 500 else ids
    return Rendered(ids, ((len(ids) - 1, len(ids)),))


def _middle_cut(rows: list[Rendered], limit: int | None) -> list[Rendered]:
    """First and last half of what is too long; the tokens in between go, of the text or not."""
    cut = []
    for row in rows:
        ids = row.ids
        if limit is not None and len(ids) > limit:
            ids = ids[: limit // 2] + ids[limit // 2 - limit :]
        cut.append(Rendered(ids, ((len(ids) - 1, len(ids)),)))
    return cut


def _glued(text: str, case: Case) -> Rendered:
    """Prompt and text as one string; the tokenizer cuts it and keeps room for BOS and EOS."""
    tokenizer = case.tokenizer
    room = case.max_length - len(tokenizer.prefix) - 1
    ids = [*tokenizer.prefix, *_ids(tokenizer, (case.instruction or "") + text)[:room], tokenizer.eos]
    return Rendered(ids, tuple((i, i + 1) for i in case.read_by_the_pooling(ids)))
