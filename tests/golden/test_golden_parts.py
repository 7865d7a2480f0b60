"""Golden cases of backward attention, word embeddings, filters, spectroscopy and training objectives."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from golden_cases import Case, all_cases, cases, golden_folder, tokenizer_of, unit

from ragidx.indexer.encoders import pooling
from ragidx.indexer.encoders.backbone import attend_both_ways
from ragidx.indexer.encoders.batching import collate
from ragidx.indexer.encoders.decoder import DecoderEncoder
from ragidx.indexer.encoders.load import encoder_of
from ragidx.indexer.filters.filter import MAKERS, coordinates, directions, drawn_columns, edge_columns, kept_columns
from ragidx.indexer.filters.fitting import FilterSample
from ragidx.indexer.filters.logits import average_of_log_p, delta, top_logits, top_tokens
from ragidx.indexer.filters.unembedding import find_unembedding, spectrum_of
from ragidx.indexer.models.checkpoint import INPUTS
from ragidx.indexer.models.locate import locate
from ragidx.indexer.prompts.rendering import render
from ragidx.indexer.specs import EncoderSpec, FilterSpec
from ragidx.pipelines.experiments.train.decoders.mntp import mask_of
from ragidx.pipelines.experiments.train.objectives import Masking, blocks, contrastive_loss, mask_tokens, mntp_loss

pytestmark = pytest.mark.slow
CPU = torch.device("cpu")
Batch = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]
# The groups of the manifests, and the file that runs each of them.
METHODS_HERE = ("llm2vec word level", "mntp", "contrastive loss", "embedfilter ablations", "logit spectroscopy")
METHODS_HERE += ("bert-whitening and pca",)
METHODS_OF_VECTORS = ("echo", "llm2vec", "bidirectional attention", "prompteol", "metaeol")


def test_every_golden_case_is_run_by_one_of_these_tests() -> None:
    known = (*METHODS_HERE, *METHODS_OF_VECTORS)
    families = ("reba-", "embedfilter + ", "pooling-and-attention model ")

    lost = [case.id for case in all_cases() if case.method not in known and not case.method.startswith(families)]

    assert not lost
    assert all_cases()


def _encoder(case: Case, **fields: object) -> DecoderEncoder:
    spec = EncoderSpec(**fields)  # type: ignore[arg-type]
    encoder = encoder_of(locate(str(case.model_path)), spec, device="cpu", dtype="float32")
    assert isinstance(encoder, DecoderEncoder)
    if case.bos is not None:  # the template leaves it to the tokenizer, the manifest says whether there is a BOS
        encoder.tokenizer.prefix = [case.tokenizer.bos] if case.bos else []
    return encoder


@pytest.mark.parametrize("case", cases(starting="reba-"))
def test_golden_backward_attention(case: Case) -> None:
    expected, raw = case.expected, case.tolerance["raw"]
    reba = _encoder(case, method="reba", template="reba", copies=case.repeat)
    rows = render(reba.template, case.texts, reba.tokenizer, limit=case.max_length)
    given = [ids[ids >= 0].tolist() for ids in expected["input_ids"]]
    assert [row.ids for row in rows] == [reba.tokenizer.prefix + ids * case.repeat for ids in given]
    batch = collate(rows, pad=0, device=CPU)

    np.testing.assert_allclose(reba.forward(*batch, None).numpy(), expected["reba_mean"], atol=raw)
    np.testing.assert_allclose(unit(reba.forward(*batch, None).numpy()), expected["embeddings_l2"], atol=2e-5)
    reba.spec = dataclasses.replace(reba.spec, pooling="last")
    np.testing.assert_allclose(reba.forward(*batch, None).numpy(), expected["reba_last"], atol=raw)
    _compare_words(case, reba, batch)
    _compare_attention(case, reba, rows[int(expected["attention_text"][0])].ids)


def _compare_words(case: Case, reba: DecoderEncoder, batch: Batch) -> None:
    vectors, offsets = reba._token_vectors(*batch).numpy(), case.expected["word_offsets"]
    for text in range(len(offsets) - 1):
        own = vectors[text][batch[2][text].numpy()]
        expected = case.expected["word_embeddings"][offsets[text] : offsets[text + 1]]
        np.testing.assert_allclose(own, expected, atol=case.tolerance["raw"])


def _compare_attention(case: Case, reba: DecoderEncoder, ids: list[int]) -> None:
    """The strongest attention, the states and the columns' weights of one text alone, BOS left out."""
    start = len(reba.tokenizer.prefix)
    states, strongest = reba.backbone.states_and_attention(torch.tensor([ids]), None)
    n = (len(ids) - start) // case.repeat
    first = torch.zeros(1, len(ids))
    first[:, start : start + n] = 1
    columns = torch.bmm(first.unsqueeze(1), pooling.look_back(strongest, None))[0, 0, start:]
    shown = slice(start, None) if case.expected["states"].shape[0] == len(ids) - start else slice(None)

    np.testing.assert_allclose(states[0, shown].numpy(), case.expected["states"], atol=case.tolerance["raw"])
    np.testing.assert_allclose(strongest[0, shown, shown].numpy(), case.expected["attention_max"], atol=2e-5)
    np.testing.assert_allclose(columns.numpy(), case.expected["column_weights"][-len(columns) :], atol=1e-4)


@pytest.mark.parametrize("case", cases(starting="reba-"))
def test_golden_repeated_and_plain(case: Case) -> None:
    """Echo with k copies and classical, which the ReBA cases hold for comparison; one copy is classical."""
    for method, copies in {"echo": case.repeat, "classical": 1}.items():
        encoder = _encoder(case, method="echo", template="echo-copies", copies=copies)
        rows = render(encoder.template, case.texts, encoder.tokenizer, limit=case.max_length)
        for pooled in ("mean", "last") if (method, copies) != ("echo", 1) else ():
            encoder.spec = dataclasses.replace(encoder.spec, pooling=pooled)

            vectors = encoder.forward(*collate(rows, pad=0, device=CPU), None).numpy()

            np.testing.assert_allclose(vectors, case.expected[f"{method}_{pooled}"], atol=case.tolerance["raw"])


@pytest.mark.parametrize("case", cases("llm2vec word level"))
def test_golden_words(case: Case) -> None:
    encoder = _encoder(case, method="llm2vec", template="llm2vec", attention=case.attention)
    shifted = case.retroactive_labels == "next_token"

    words = encoder.encode_words(case.words, previous=shifted)

    for number, own in enumerate(case.words):
        ids = case.expected["input_ids"][number][case.expected["attention_mask"][number] == 1]
        assert render(encoder.template, [" ".join(own)], encoder.tokenizer)[0].ids == ids.tolist()
    for (text, word, _), vector in zip(case.expected["word_index"], case.expected["word_vectors"], strict=True):
        np.testing.assert_allclose(words[text][word], vector, atol=case.tolerance["raw"])


@pytest.mark.parametrize("case", cases("mntp"))
def test_golden_masked_next_token_prediction(case: Case) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(case.model_path, dtype=torch.float32).eval()
    attend_both_ways(model)
    ids, labels = (torch.from_numpy(case.expected[name].astype(np.int64)) for name in ("input_ids", "labels"))

    with torch.inference_mode():
        logits = model(input_ids=ids, use_cache=False).logits

    places = torch.from_numpy(case.expected["masked_positions"].astype(np.int64))
    rows = case.expected["logits_rows"]
    shown = places[: len(rows)]
    np.testing.assert_allclose(logits[shown[:, 0], shown[:, 1] - 1].numpy(), rows, atol=2e-3)
    assert float(mntp_loss(logits, labels)) == pytest.approx(float(case.expected["loss"][0]), abs=1e-4)
    right = logits[places[:, 0], places[:, 1] - 1].argmax(-1) == labels[places[:, 0], places[:, 1]]
    assert float(right.float().mean()) == pytest.approx(float(case.expected["accuracy"][0]), abs=1e-6)


@pytest.mark.parametrize("case", cases("mntp"))
def test_golden_blocks_and_masks(case: Case) -> None:
    prefix = case.tokenizer.prefix
    ids = [prefix + case.tokenizer.piece(text) for text in case.texts]
    whole = torch.from_numpy(case.expected["input_ids_original"].astype(np.int64))
    backend = case.tokenizer.pieces
    special = {number for number, token in backend.get_added_tokens_decoder().items() if token.special}
    masking = Masking(
        probability=case.mlm_probability,
        mask_id=case.mask_token_id,
        special_ids=frozenset(special),
        n_tokens=backend.get_vocab_size(),
        all_masked=case.collator == "all_mask",
    )

    is_known = backend.token_to_id(case.mask_token) is not None  # in place of another the authors' code takes <unk>
    assert (mask_of(case.tokenizer) == case.mask_token_id) == is_known
    cut = torch.stack(list(blocks(ids, case.max_length)))
    masked, labels = mask_tokens(whole, masking, torch.Generator().manual_seed(case.seed))

    assert torch.equal(cut[: len(whole)], whole)
    if torch.__version__.split("+")[0] == case.versions["torch"].split("+")[0]:  # another one may draw other numbers
        assert torch.equal(masked, torch.from_numpy(case.expected["input_ids"].astype(np.int64)))
        assert torch.equal(labels, torch.from_numpy(case.expected["labels"].astype(np.int64)))


@pytest.mark.parametrize("name", ["llama2-tiny", "mistral-tiny"])
def test_the_mask_is_the_token_of_the_manifests_and_not_the_mark_of_a_word_before_it(name: str) -> None:
    tokenizer = tokenizer_of(golden_folder() / "models" / name)

    assert tokenizer.piece("_") == [329, 294]
    assert mask_of(tokenizer) == 294


@pytest.mark.parametrize("case", cases("contrastive loss"))
def test_golden_contrastive_loss(case: Case) -> None:
    queries, positives, negatives = (
        torch.from_numpy(case.expected[name]) for name in ("queries", "positives", "negatives")
    )
    named = [name for name in case.expected if name.startswith("loss_")]
    assert named

    for name in named:
        scale = float(name.rpartition("scale")[2])
        loss = contrastive_loss(queries, positives, None if "no_neg" in name else negatives, scale)
        assert float(loss) == pytest.approx(float(case.expected[name][0]), abs=1e-4)


@pytest.mark.parametrize("case", cases("embedfilter ablations"))
def test_golden_ablations(case: Case) -> None:
    expected, tolerance = case.expected, case.tolerance
    files = locate(str(case.model_path))
    spectrum, head = spectrum_of(files), find_unembedding(files)
    raw, hidden, k = expected["embeddings_unfiltered"], len(spectrum.directions), case.dim
    np.testing.assert_allclose(spectrum.values, expected["singular_values"], rtol=1e-4)
    chosen = {
        "bulk_kept": kept_columns(hidden, k),
        "dominant_removed": np.arange(hidden - 1, hidden - 1 - k, -1),
        "secondary_removed": np.arange(k),
        "bulk_removed": edge_columns(hidden, k),
        "random_directions": expected["kept_random_directions"].astype(np.int64),
    }
    filters = {name: directions(spectrum, columns) for name, columns in chosen.items()}
    filters["truncation"] = coordinates(hidden, np.arange(k))
    filters["random_coords"] = coordinates(hidden, expected["random_coordinates"].astype(np.int64))

    for name, columns in chosen.items():
        assert sorted(columns) == sorted(expected[f"kept_{name}"])
        kept = filters[name].matrix
        np.testing.assert_allclose(kept @ kept.T, expected[f"projector_{name}"], atol=tolerance["raw"])
    for name, one in filters.items():
        filtered = one(raw)
        np.testing.assert_allclose(filtered @ filtered.T, expected[f"gram_{name}"], atol=tolerance["gram"])
        np.testing.assert_allclose(
            unit(filtered) @ unit(filtered).T, expected[f"gram_l2_{name}"], atol=tolerance["gram_l2"]
        )
    assert len(set(drawn_columns(hidden, k, seed=0))) == k
    full = filters["bulk_kept"](raw) @ filters["bulk_kept"].matrix.T
    for vectors, tops in ((raw, "logit_lens_top_before"), (full, "logit_lens_top_after")):
        ids, _ = top_logits(head, vectors, expected[tops].shape[1])
        assert ids.tolist() == expected[tops].tolist()


@pytest.mark.parametrize("case", cases("logit spectroscopy"))
def test_golden_spectroscopy(case: Case) -> None:
    expected = case.expected
    files = locate(str(case.model_path))
    spectrum, head = spectrum_of(files), find_unembedding(files)
    assert head.name.endswith(INPUTS) == case.tied_embeddings

    average = average_of_log_p(head, spectrum, np.log(expected["p"].astype(np.float64)))
    effect = delta(head, spectrum, average, expected["top_tokens"].astype(np.int64))

    scale = np.abs(expected["average_token"]).max()
    relative = case.tolerance.get("relative_for_average_token", 1e-3)
    np.testing.assert_allclose(average / scale, expected["average_token"] / scale, atol=relative)
    np.testing.assert_allclose(effect, expected["delta"], atol=1e-3 * np.abs(expected["delta"]).max())
    assert effect.sum() == pytest.approx(-1)
    frequent = top_tokens((1e9 * expected["p"]).astype(np.int64), case.topk)
    assert frequent.tolist() == expected["top_tokens"].tolist()
    for name, size in (("signed", effect), ("abs", np.abs(effect))):
        columns = np.sort(np.argsort(size, kind="stable")[: case.dim])
        assert columns.tolist() == expected[f"kept_{name}"].tolist()
        kept = directions(spectrum, columns).matrix
        np.testing.assert_allclose(kept @ kept.T, expected[f"projector_{name}"], atol=case.tolerance["raw"])


@pytest.mark.parametrize("case", cases("bert-whitening and pca"))
def test_golden_whitening_and_pca(case: Case) -> None:
    expected, tolerance = case.expected, case.tolerance
    n, hidden = expected["fit"].shape
    sample = FilterSample(expected["fit"])

    whitening, turned = (
        MAKERS[name](FilterSpec(name, dim=case.dim), SimpleNamespace(hidden=hidden), sample)
        for name in ("whitening", "pca")
    )
    whitened = whitening(expected["new"])

    np.testing.assert_allclose(sample.components(case.dim, "pca")[0], expected["mean"], atol=1e-5)
    for divisor, scale in (("n", 1.0), ("n_minus_1", (n - 1) / n)):
        np.testing.assert_allclose(scale * whitened @ whitened.T, expected[f"gram_{divisor}"], atol=tolerance["gram"])
        np.testing.assert_allclose(
            unit(whitened) @ unit(whitened).T, expected[f"gram_l2_{divisor}"], atol=tolerance["gram_l2"]
        )
    vectors = turned(expected["new"])
    np.testing.assert_allclose(vectors @ vectors.T, expected["pca_gram"], atol=tolerance["gram"])
    np.testing.assert_allclose(unit(vectors) @ unit(vectors).T, expected["pca_gram_l2"], atol=tolerance["gram_l2"])
    np.testing.assert_allclose(turned.matrix @ turned.matrix.T, expected["pca_projector"], atol=1e-4)
