"""Token tables are trained: which pairs get a row, where rows start, what is learnt."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel, WordPiece
from tokenizers.pre_tokenizers import Whitespace

from ragidx.indexer.arrays import Floats, Ints
from ragidx.indexer.normalize import l2_normalize
from ragidx.indexer.token_table import TokenTable, pair_keys, plain, token_ids
from ragidx.pipelines.experiments.train.tables import chosen_pairs, spelled, start, train_rows


def test_pairs_are_frequent_ones_that_are_seen_more_than_chance_has_it() -> None:
    phrase, drawn = [90, 91], np.random.default_rng(0)
    ids = [np.array([*drawn.integers(0, 80, 30), *phrase]) for _ in range(40)]
    ids += [np.array([95, 96])] * 4  # one time too few

    found = chosen_pairs(ids, 1)
    assert found.tolist() == pair_keys(np.array(phrase)).tolist()
    every = chosen_pairs(ids)
    assert (np.diff(every) > 0).all()
    assert pair_keys(np.array([95, 96]))[0] not in every
    assert chosen_pairs([np.array([1]), np.zeros(0, np.int64)]).tolist() == []


def test_a_row_starts_as_the_vector_of_its_token_less_the_mean_and_short_where_it_is_frequent() -> None:
    single = np.array([[1, 0], [0, 1], [0, 0]], np.float32)

    made = start(single, np.array([6, 3, 1]))
    wanted = np.array([[0.5, -0.5], [-0.5, 0.5], [0, 0]])
    np.testing.assert_allclose(made, wanted * np.array([[1e-3 / 0.601], [1e-3 / 0.301], [1]]), rtol=1e-5)


def test_vectors_that_are_sums_of_tokens_and_a_mean_are_learnt_without_the_mean() -> None:
    drawn = np.random.default_rng(1)
    words = [f"w{number}" for number in range(60)]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = Whitespace()
    meaning = drawn.standard_normal((60, 8))
    texts = [" ".join(words[one] for one in drawn.integers(1, 60, 12)) for _ in range(1500)]
    ids = token_ids(plain(tokenizer), texts)
    sums = np.stack([meaning[row].sum(axis=0) for row in ids])
    vectors = l2_normalize((sums / np.linalg.norm(sums, axis=1, keepdims=True) + 0.5).astype(np.float32)).vectors
    stages = list[str]()

    def single(tokens: Ints) -> Floats:
        apart = np.random.default_rng(0).standard_normal((len(tokens), 8)).astype(np.float32)
        return l2_normalize(apart).vectors

    def learnt(seed: int, tell: Callable[[str], None] = lambda _: None) -> TokenTable:
        return train_rows(ids[:1200], vectors[:1200], single, seed=seed, tell=tell).table(tokenizer)

    made = learnt(1, stages.append)
    wanted = l2_normalize(vectors[1200:] - vectors[:1200].mean(axis=0)).vectors
    assert (made.vectors(texts[1200:]) * wanted).sum(axis=1).mean() > 0.9
    assert len(stages) == 10
    assert stages[0] == "training, step 0 of 50"
    assert learnt(1).to_bytes() == made.to_bytes()
    assert learnt(2).to_bytes() != made.to_bytes()


def test_a_token_spells_what_it_is_in_a_word_without_the_mark_of_its_inside() -> None:
    tokenizer = Tokenizer(WordPiece({"[UNK]": 0, "un": 1, "##mana": 2}, unk_token="[UNK]"))

    assert spelled(tokenizer, np.array([1, 2])) == ["un", "mana"]
