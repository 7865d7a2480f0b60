"""Decoder encoders: a template, a backbone and a pooling over any decoder that `AutoModel` loads.

Template: text -> ids and pooled span. Backbone: ids -> hidden states. Pooling: states and span -> vector. A method is a
choice of the three; ReBA's backward attention and the trainable pooling replace a plain pooling, and aligned values the
hidden states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from ragidx.corpora.errors import SpecError
from ragidx.indexer.arrays import Floats
from ragidx.indexer.encoders import pooling, precision
from ragidx.indexer.encoders.backbone import load_backbone
from ragidx.indexer.encoders.protocol import check_texts
from ragidx.indexer.encoders.torch_encoder import BatchEncoder
from ragidx.indexer.encoders.trained_pooling import TrainablePooling, load_pooling
from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.prompts.prompts import Prompted
from ragidx.indexer.prompts.rendering import render_words
from ragidx.indexer.prompts.tokenizer import check_vocabulary, load_tokenizer
from ragidx.indexer.prompts.words import Words, are_spans, positions_of_words, split_words
from ragidx.indexer.specs import EncoderSpec


class DecoderEncoder(Prompted, BatchEncoder):
    """Template, backbone and pooling over any decoder that `AutoModel` loads."""

    def __init__(self, files: ModelFiles, spec: EncoderSpec, *, device: str, dtype: str, attn: str = "auto") -> None:
        super().__init__(device, dtype)
        self.files, self.spec = files, spec
        self.tokenizer = load_tokenizer(files)
        numbers = precision.DTYPES[self.dtype]
        self.backbone = load_backbone(files, spec, device=device, dtype=numbers, implementation=attn)
        if self.dtype == "mixed":
            precision.use_mixed(self.backbone.model)
        check_vocabulary(self.tokenizer, self.backbone.n_tokens, files.name)
        self.hidden, self.apart = self.backbone.hidden, self.backbone.positions_change_at
        self.use_template(self.backbone.max_positions)
        self.pooler = self._load_pooler()

    @torch.inference_mode()
    def forward(self, ids: Tensor, attention: Tensor | None, pooled: Tensor, instruction: str | None) -> Tensor:
        """Hidden states pooled in float32 for any dtype of the backbone; prompts for one text are averaged."""
        vectors = self.vectors(ids, attention, pooled)
        n_prompts = 1 + len(self.template.of(instruction).also)
        return vectors if n_prompts == 1 else vectors.view(-1, n_prompts, self.hidden).mean(dim=1)

    def module(self) -> torch.nn.Module:
        """The backbone's network."""
        return self.backbone.model  # type: ignore[no-any-return]

    def encode_words(self, texts: Sequence[Words], *, previous: bool | None = None) -> list[Floats]:
        """Vectors of words in their context: the mean over a word's tokens, of states or of ReBA's vectors.

        Where the text is repeated, echo takes its last copy and ReBA its first. A word that no token spells is zero.

        Args:
            texts: for each text the list of its words, which are read with single spaces between them; or the text and
                the spans of its words, `("这是句子", [(0, 2), (2, 4)])`, in characters with the end excluded. The text
                is then read as it is, and a token that overlaps two words belongs to both.
            previous: whether the states are taken one position before each token, which is where a model that was
                trained with MNTP predicts it; a token with nothing before it is taken itself. None: where llm2vec has
                adapters, or the model's preset says that it was trained so.

        Returns:
            (n_words, hidden) float32 for each text, raw: neither filtered nor normalised.

        Raises:
            SpecError: the method reads no words (a prompt's last token), a text is longer than the model reads, or the
                spans of words are empty, overlap, are not in order or lie outside of the text.
            TypeError: a text is a string, or a word is not one.
        """
        if self.template.span == "last" or self.pooler is not None or self.spec.method == "aligned-values":
            raise SpecError(
                f"{self.spec.method} with {self.spec.pooling} pooling has one vector a text and none for its words",
                "use `method=llm2vec`, reba or classical",
            )
        if previous is None:
            is_trained = bool(self.files.adapters) or bool(self.files.preset().get("masked"))
            previous = self.spec.method == "llm2vec" and is_trained
        for words in texts:
            check_texts(cast("Sequence[str]", words[:1] if are_spans(words) else words))
        read = [split_words(words, f"text {number}") for number, words in enumerate(texts)]
        rows = render_words(self.template, [text for text, _ in read], self.tokenizer)
        limit = self.text_limit()
        for number, (_, spans) in enumerate(rows):
            if limit is not None and len(spans) > limit:
                raise SpecError(f"text {number} has {len(spans)} tokens, the model reads {limit}", "encode it in parts")
        of_words: list[Floats] = [np.zeros((len(words), self.hidden), np.float32) for _, words in read]
        for batch in self._run([row for row, _ in rows], self._token_vectors):
            for row, vectors in zip(batch.rows, batch.vectors, strict=True):
                at, spans = rows[row][0].positions(), rows[row][1]
                for number, numbers in enumerate(positions_of_words(spans, read[row][1])):
                    places = [max(0, at[i] - previous) for i in numbers]
                    of_words[row][number] = vectors[places].mean(axis=0) if places else 0
        return of_words

    @property
    def has_layers(self) -> bool:
        """Whether the states of every layer can be read as they are."""
        has_states = self.pooler is None and self.spec.method not in ("reba", "aligned-values")
        return has_states and self.backbone.layer == -1

    def encode_layers(self, texts: Sequence[str], instruction: str | None = None) -> Floats:
        """Vectors of texts from every layer: its states pooled, the last layer's after the final norm.

        Of a trainable pooling without its weights they are the rows that one of all layers reads.

        Args:
            texts: the texts to encode, each once for all layers.
            instruction: the task sentence put before them, or an empty string, which makes queries of them; None: they
                are documents.

        Returns:
            (layers, n, hidden) float32, raw: neither filtered nor normalised; row 0 is the state after layer 1.

        Raises:
            SpecError: the method or pooling reads more than the states of one layer, or the encoder is not of the last.
        """
        self._watch_layers()
        n_prompts = 1 + len(self.template.of(instruction).also)

        def forward(ids: Tensor, attention: Tensor | None, pooled: Tensor) -> Tensor:
            weights = self._weights(pooled)
            with precision.threads(self._threads_for(ids)):
                rows = self.backbone.layers(ids, attention, lambda states: pooling.pooled(states, weights))
            return rows.view(-1, n_prompts, *rows.shape[1:]).mean(dim=1)

        of_layers = np.zeros((self.backbone.n_layers, len(texts), self.hidden), np.float32)
        for batch in self._run(self.rendered(texts, instruction), forward):
            of_layers[:, batch.rows] = batch.vectors.transpose(1, 0, 2)
        return of_layers

    def encode_tokens(
        self, texts: Sequence[str], instruction: str | None = None, *, every_layer: bool = False
    ) -> list[Floats]:
        """(t, hidden) float32 for each text, raw: states of the pooled tokens; with an instruction, of queries.

        With `every_layer` (L, t, hidden), as `encode_layers` has them before they are pooled.

        Raises:
            SpecError: as of `encode_layers`, with `every_layer`.
        """
        if every_layer:
            self._watch_layers()
        rows = self.rendered(texts, instruction)
        of_texts: list[Floats] = [np.zeros((0, self.hidden), np.float32) for _ in texts]
        for batch in self._run(rows, self._layer_vectors if every_layer else self._token_vectors):
            for row, states in zip(batch.rows, batch.vectors, strict=True):
                of_texts[row] = states[..., rows[row].positions(), :]
        return of_texts

    def _watch_layers(self) -> None:
        if not self.has_layers:
            raise SpecError(
                f"{self.spec.method} with {self.spec.pooling} pooling has no vector for each layer",
                "use a plain pooling of `method=classical`, echo, prompteol, metaeol or llm2vec",
                where="`layer`",
            )
        self.backbone.watch_layers()

    def _weights(self, pooled: Tensor) -> Tensor:
        """(b, t) of a plain pooling, or of a layer's row for a trainable one: the EOS, or both ways the mean."""
        if self.spec.pooling != "trainable":
            return pooling.WEIGHTS[self.spec.pooling](pooled)
        return pooling.last(pooled) if self.spec.attention == "causal" else pooling.mean(pooled)

    def vectors(self, ids: Tensor, attention: Tensor | None, pooled: Tensor) -> Tensor:
        """One vector a row: (b, t), (b, t), (b, t) -> (b, hidden) float32; with gradients where weights have them."""
        if self.pooler is not None:
            return self._trained(self.pooler, ids, attention, pooled)
        weights = self._weights(pooled)
        if self.spec.method == "aligned-values":
            return self.backbone.attended(ids, attention, lambda added: pooling.pooled(added, weights))
        if self.spec.method != "reba":
            return pooling.pooled(self.backbone.states(ids, attention), weights)
        states, strongest = self.backbone.states_and_attention(ids, attention)
        weights = torch.bmm(weights.unsqueeze(1), pooling.look_back(strongest, attention)).squeeze(1)
        return pooling.pooled(states, weights)

    @torch.inference_mode()
    def _token_vectors(self, ids: Tensor, attention: Tensor | None, pooled: Tensor) -> Tensor:
        """(b, t, d) float32: states, or with backward attention what each token takes of the later ones."""
        with precision.threads(self._threads_for(ids)):
            if self.spec.method != "reba":
                return self.backbone.states(ids, attention).to(torch.float32)
            states, strongest = self.backbone.states_and_attention(ids, attention)
            return torch.bmm(pooling.look_back(strongest, attention), states.to(torch.float32))

    def _layer_vectors(self, ids: Tensor, attention: Tensor | None, pooled: Tensor) -> Tensor:
        """(b, L, t, d) float32: states after each layer."""
        with precision.threads(self._threads_for(ids)):
            return self.backbone.layers(ids, attention, lambda states: states.to(torch.float32))

    def _load_pooler(self) -> TrainablePooling | None:
        if self.files.pooler is None:
            return None
        pooler = load_pooling(self.files.pooler, hidden=self.hidden, n_layers=self.backbone.n_layers, encoder=self.spec)
        if pooler.multi_layer and self.backbone.layer != -1:
            raise SpecError("this pooling reads every layer", "remove `layer`", where="`layer`")
        if pooler.multi_layer:
            self.backbone.watch_layers()
        return pooler.eval().requires_grad_(False).to(self.device)

    def _trained(self, pooler: TrainablePooling, ids: Tensor, attention: Tensor | None, read: Tensor) -> Tensor:
        """The trainable pooling over every token, or over a row a layer."""
        if not pooler.multi_layer:
            return pooler(self.backbone.states(ids, attention).to(torch.float32), read)  # type: ignore[no-any-return]
        weights = self._weights(read)
        rows = self.backbone.layers(ids, attention, lambda states: pooling.pooled(states, weights))
        every = torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
        return pooler(rows, every)  # type: ignore[no-any-return]
