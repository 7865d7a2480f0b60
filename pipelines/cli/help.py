"""Help pages with options in groups, the nearest command for a mistyped one, and fields of messages as options.

`--help` shows the options that most people need, `--help-all` all of them, in the same groups.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from typing import Any

import click

from ragidx.corpora.errors import RagidxError
from ragidx.pipelines.cli.keywords import GONE, KeywordOption, option_name, typed_options_of

GROUPED_FROM = 12  # options; shorter lists are read whole

# Parameter names by group, in the order of the help page. An option in no group is one of the run; a keyword says its
# own, which is also that of options of the same name.
GROUPS = {
    "Model": "offline",
    "Method": "",
    "Filter": "",
    "Chunk": "",
    "Index": "index target_recall",
    "File": "",
    "Shard": "shards shard stage ray actors commit",
    "Question": "vector run",
    "Ranking": "",
    "Reranking": "rerank rerank_top rerank_method",
    "Hit": "hit full show",
    "Comparison": "",
    "Training": "minutes",
    "Spectrum": "spectrum corpus tokens centred",
}
RUN = "Run"

# What `--help` shows of commands with many options: what decides the outcome for most people, and nothing that an error
# message names when it is needed (`--allow-removal`, `--pooler`).
SHOWN = {
    "build": "model endpoint device method tau dim chunk_size index index_type rebuild vectors include exclude "
    "text_field plan restore quiet as_json",
    "add-source": "name index device endpoint include exclude text_field id_field records encoding workers strict "
    "accept offline quiet as_json",
    "query": "model device index queries run vector where mode dim min_z rerank rerank_top k per_document context "
    "full show as_json",
    "doctor": "model adapters endpoint device dtype method instruction layer attention pooling offline as_json",
    "lens": "model device method instruction tau dim filter index where k hit spectrum corpus tokens out as_json",
    "evaluate": "model method layer filter tau dim mode weight chunk_size queries qrels without_labels measure "
    "reference margin cache out as_json",
    "upgrade": "model endpoint device method tau dim filter chunk_size index queries qrels margin force quiet as_json",
    "tune": "model endpoint device method filter chunk_size queries qrels split measure minutes cache include "
    "exclude text_field as_json",
    "train head": "revision endpoint device method layer instruction pairs kind dim teacher limit epochs out force "
    "cache as_json",
    "train pooling": "revision device method attention instruction pairs rows latents heads head_width limit epochs "
    "out force cache as_json",
    "train questions": "text model endpoint device method layer queries qrels margin force limit epochs out cache "
    "quiet as_json",
    "train contrastive": "device dtype method attention pairs negatives teacher limit epochs minutes batch rate "
    "read_tokens rank out force cache as_json",
    "train simcse": "device dtype method attention text limit epochs minutes batch rate read_tokens rank "
    "attention_dropout out force as_json",
    "train mntp": "device dtype template text hidden_share limit epochs minutes batch rate read_tokens rank out "
    "force as_json",
    "train export": "method template layer instruction pooling attention tau dim filter as_json",
    "sweep": "model endpoint device method chunk_size tau dim filter index_type queries qrels vectors "
    "include exclude out as_json",
}
SHOWS_ALL = "ragidx.help_all"  # in the context of a command
_INDEX = (
    "info",
    "verify",
    "history",
    "compact",
    "shrink",
    "sources",
    "upgrade",
    "adapt",
)  # commands whose only place is the index
_OTHER_WORDS = {"search": "query", "ask": "query", "index": "build", "update": "build", "status": "info"}
_MEANT = dict.fromkeys(_INDEX, ": name the index with --index FOLDER") | {
    "query": ": put the question in quotes",
    "delete": ": name it with --id",
}


@functools.cache
def groups() -> dict[str, list[str]]:
    """The groups with all names; imports what the list of commands, which has no options, does not need."""
    from ragidx.indexer.options import EncoderOptions, RunOptions, options_of
    from ragidx.pipelines.experiments.evaluate.options import Grid, Judge, Questions
    from ragidx.retriever.keywords import AskKeywords, SearchKeywords

    named = {group: names.split() for group, names in GROUPS.items()}
    for keywords in (EncoderOptions, RunOptions, AskKeywords, SearchKeywords, Grid, Questions, Judge):
        for name, (_, option) in options_of(keywords).items():
            named[option.group].append(name)
    return named


class GroupedCommand(click.Command):
    """A command whose help shows many options in groups; it refuses arguments it has no place for."""

    allow_extra_args = True  # `invoke` refuses them, with what to do
    takes_the_last = True  # of an option that is typed twice, as scripts want it that add one to those they have

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As a command does; a number is written without underscores, which Python takes out (1_0 is 10 to it)."""
        try:
            given, _, typed = self.make_parser(ctx).parse_args(list(args))
        except click.NoSuchOption as fault:
            place = next((param for param in self.params if isinstance(param, click.Argument)), None)
            if instead := GONE.get(fault.option_name.removeprefix("--").removeprefix("no-")):
                raise click.UsageError(f"'{fault.option_name}' is gone: {instead}", ctx) from fault
            if fault.option_name == "--index" and place is not None:
                shown = f"`{ctx.command_path} FOLDER`"
                raise click.UsageError(
                    f"'--index' is no option here: the index is an argument, {shown}", ctx
                ) from fault
            raise
        for param in () if self.takes_the_last else typed:
            if isinstance(param, click.Option) and not param.multiple and typed.count(param) > 1:
                raise click.UsageError(f"{param.opts[0]} is given twice, and has one value: give it once", ctx)
        for param in self.params:
            if isinstance(param.type, click.types.IntParamType | click.types.FloatParamType):
                value = given.get(param.name or "")
                for text in value if isinstance(value, list) else [value]:
                    if isinstance(text, str) and "_" in text:
                        raise click.BadParameter(f"{text!r} is not a valid {param.type.name}.", ctx, param)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a failure that is about a value of `ragidx.toml` names its line.

        Raises:
            UsageError: an argument is left over.
        """
        if ctx.args:
            raise click.UsageError(f"unexpected argument '{ctx.args[0]}'{_MEANT.get(self.name or '', '')}", ctx)
        try:
            return super().invoke(ctx)
        except RagidxError as fault:
            option = as_options(fault.where)
            from ragidx.pipelines.cli.config import place_of  # help needs none

            if place := place_of(ctx, option, fault.message):
                fault.where = f"{place}: {option}" if option else place
            raise

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, `--help` and `--help-all`."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, group by group where there are many."""
        options = [param for param in super().get_params(ctx) if isinstance(param, click.Option)]
        wanted = "" if ctx.meta.get(SHOWS_ALL) else SHOWN.get(ctx.command_path.partition(" ")[2], "")
        shown = [
            (option, record)
            for option in options
            if not wanted or option.name in wanted.split() or "--help" in option.opts
            if (record := option.get_help_record(ctx)) is not None
        ]
        if len(options) > len(shown):
            shown.append((_HELP_ALL, ("--help-all", f"Show {len(options) - len(shown)} more options and exit.")))
        if len(shown) < GROUPED_FROM:
            with formatter.section("Options"):
                formatter.write_dl([record for _, record in shown])
            return
        grouped: dict[str, list[tuple[str, str]]] = {group: [] for group in (*GROUPS, RUN)}
        for option, record in shown:
            grouped[group_of(option)].append(record)
        for group, rows in grouped.items():
            if rows:
                with formatter.section(f"{group} options"):
                    formatter.write_dl(rows)


class MeasuringCommand(GroupedCommand):
    """A command of whose options some are axes: of the others none is given twice, as if it were one, too."""

    takes_the_last = False


def group_of(option: click.Option) -> str:
    """The group of an option on a help page.

    >>> group_of(click.Option(["--layer"])), group_of(click.Option(["--json", "as_json"]))
    ('Method', 'Run')
    """
    if isinstance(option, KeywordOption):
        return option.said.group
    return next((group for group, names in groups().items() if option.name in names), RUN)


def nearest(name: str, known: list[str]) -> str:
    """A suggestion after an unknown name: the nearest known one, or nothing.

    >>> nearest("biuld", ["build", "query"]), nearest("x", ["build", "query"])
    (" (Did you mean 'build'?)", '')
    """
    found = difflib.get_close_matches(name, [*known, *_OTHER_WORDS], n=1, cutoff=0.5)
    return f" (Did you mean '{_OTHER_WORDS.get(found[0], found[0])}'?)" if found else ""


def _print_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[SHOWS_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_print_all, help="Show all options."
)


def as_options(text: str) -> str:
    """A message of the library, which names fields, as the command line names them; what it quotes stays as it is.

    >>> as_options("give one of `tau` and `dim`, or `filter=none`; or `layer_norm=False`, `rebuild=True`, `heading`")
    'give one of --tau and --dim, or --filter none; or --no-layer-norm, --rebuild, `heading`'
    >>> as_options("the model's `dim`: no folder '/tmp/`dim`'")
    "the model's --dim: no folder '/tmp/`dim`'"
    """
    return _FIELD.sub(_as_option, text)


def error_text(fault: RagidxError) -> str:
    """An error as `as_options`; a place is one field or what a user typed, and a condition's error repeats it."""
    if fault.where.startswith("condition"):
        return str(fault)
    where = as_options(fault.where) if _FIELD.fullmatch(fault.where) else fault.where
    return str(RagidxError(as_options(fault.message), as_options(fault.hint), where=where))


def reasons(skipped: Mapping[str, Any]) -> dict[str, Any]:
    """What was skipped by reason, each as `as_options`."""
    return {as_options(reason): value for reason, value in skipped.items()}


_FIELD = re.compile(r"""(?<!\w)(?:'.*?'|".*?")(?!\w)|`([A-Za-z_.]+(?:\(\))?)(?:=([^`]*))?`""")  # or a quotation


def _as_option(found: re.Match[str]) -> str:
    option, value = _options().get(found[1]), found[2]
    if option is None:
        return found[0]
    if value == "False":
        return f"--no-{option[2:]}"
    return option if value in (None, "True") else f"{option} {value}"


@functools.cache
def _options() -> dict[str, str]:
    from ragidx.pipelines.experiments.evaluate.options import Questions
    from ragidx.pipelines.experiments.train import keywords as training
    from ragidx.retriever.keywords import BuildKeywords, ChunkKeywords, FilterKeywords
    from ragidx.retriever.trial_keywords import AdaptKeywords, QuestionsKeywords, SwapKeywords

    named = {name: option_name(name) for names in groups().values() for name in names}
    trained = (training.HeadKeywords, training.PoolingKeywords, training.ContrastiveKeywords, training.MntpKeywords)
    for each in (AdaptKeywords, QuestionsKeywords, SwapKeywords, training.MiniKeywords, *trained, BuildKeywords):
        named |= {name: option_name(name, option) for name, _, option in typed_options_of(each)}
    named |= {f"filter.{name.removeprefix('filter_')}": option_name(name) for name in FilterKeywords.__annotations__}
    named |= {f"chunks.{name.removeprefix('chunk_')}": option_name(name) for name in ChunkKeywords.__annotations__}
    named |= {f"questions.{name}": option_name(name, option) for name, _, option in typed_options_of(Questions)}
    return named | {
        "Questions.made()": "--without-labels",
        "yes": "--yes",
        "ids": "--id",
        "address": "--ray",
        "allow_host": "--allow-host",
        "timeout": "--timeout",
        "deadline": "--deadline",
        "token_file": "--token-file",
        "writable": "--writable",
        "decoded": "--decoded",
        "offset": "--filter-offset",
        "group_size": "--tokens",
    }
