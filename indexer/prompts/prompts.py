"""A model's template around texts: the token ids it reads, the span that is pooled, and how long a text may be."""

from __future__ import annotations

from collections.abc import Sequence

from ragidx.indexer.models.locate import ModelFiles
from ragidx.indexer.prompts.rendering import Rendered, n_copies, render, text_limit
from ragidx.indexer.prompts.templates import DEFAULT_INSTRUCTION, template_of
from ragidx.indexer.prompts.tokenizer import TextTokenizer
from ragidx.indexer.specs import EncoderSpec


class Prompted:
    """What an `Encoder` reads of a text, where a template is put around it; `use_template` comes first."""

    files: ModelFiles
    spec: EncoderSpec
    tokenizer: TextTokenizer

    def use_template(self, max_positions: int | None) -> None:
        """Take the spec's template; `max_positions` is the longest input of the model, None: no limit."""
        self.template = template_of(self.spec, self.files.family)
        known = (self.tokenizer.max_length, max_positions)
        self.max_length: int | None = min((n for n in known if n), default=None)
        self._limits: dict[str | None, int | None] = {}

    def default_instruction(self) -> str:
        """What queries carry by default: the retrieval instruction for methods trained with one, else none."""
        return DEFAULT_INSTRUCTION if self.template.of("").instructed else ""

    def text_limit(self, instruction: str | None = None) -> int | None:
        """The most tokens of a text that are read; with an instruction, of a query.

        Raises:
            SpecError: the template alone fills the model.
        """
        if instruction not in self._limits:
            fitting = text_limit(self.template, self.tokenizer, self.max_length, instruction, self.spec)
            asked = self.spec.max_length
            if asked is not None and self.spec.compute_matched:
                asked = max(1, asked // n_copies(self.template, instruction))
            limits = (limit for limit in (fitting, asked) if limit is not None)
            self._limits[instruction] = min(limits, default=None)
        return self._limits[instruction]

    def template_content(self) -> str:
        """The template's pieces as they are."""
        return self.template.content()

    def rendered(self, texts: Sequence[str], instruction: str | None, at_most: int | None = None) -> list[Rendered]:
        """Ids and pooled span of each text, of which at most so many tokens are read; `instruction` None: documents."""
        limit = min((n for n in (self.text_limit(instruction), at_most) if n is not None), default=None)
        return render(self.template, texts, self.tokenizer, instruction=instruction, limit=limit, spec=self.spec)
