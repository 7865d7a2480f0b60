"""`ragidx`: the group of commands, and the one place that turns failures into a message and an exit status.

Each command is imported when it is called, so `ragidx --help` loads no torch, transformers or faiss. Exit
status: 0 done; 1 done, but a check failed or `--strict` found something; 2 bad input or usage; 130 and 143 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from ragidx import __version__
from ragidx.corpora.addresses import without_passwords
from ragidx.corpora.errors import RagidxError, is_panic, machine_error
from ragidx.indexer.model_files import user_cache
from ragidx.pipelines.cli import console, interrupts
from ragidx.pipelines.cli.help import error_text, nearest

COMMANDS = {
    "build": "Make or update the index of a corpus.",
    "init": "Write a file of settings, ragidx.toml.",
    "add": "Add documents from JSON Lines to an index, by their ids.",
    "add-source": "Add a folder or file to the sources of an index.",
    "remove-source": "Remove a source from an index.",
    "sources": "List the sources of an index.",
    "query": "Search an index for the chunks that answer a question.",
    "serve": "Answer questions over HTTP: people on a page, programs, agents.",
    "mcp": "Answer an agent on stdin and stdout, by the Model Context Protocol.",
    "info": "Show what an index holds and how it was made.",
    "lens": "Show the tokens nearest to a text's vector, and what the filter removes.",
    "evaluate": "Measure which configuration is better, and whether the difference is real.",
    "tune": "Propose a layer, a filter and a search for a corpus and a model.",
    "sweep": "Measure storage, time and quality at several widths, to choose one.",
    "train": "Train a map over a model, a table of questions, or the model itself.",
    "adapt": "Fit an index's vectors to its own documents, where answers get better.",
    "models": "Show the models on this machine, and those with a preset.",
    "verify": "Read a whole index and check it.",
    "delete": "Delete documents from an index, by id or by a condition.",
    "export": "Write the rows of an index, with their vectors, to a file or a dataset.",
    "compact": "Merge small segments of an index, and drop deleted rows.",
    "shrink": "Make an index narrower, without encoding again.",
    "reindex": "Make a new index from stored vectors: narrower, or of another type.",
    "upgrade": "Make an index's vectors anew, by another model say, unless answers get worse.",
    "history": "List the kept generations of an index.",
    "rollback": "Go back to a kept generation of an index.",
    "doctor": "Check this machine, and that a model runs correctly.",
    "demo": "Index the bundled sample corpus and ask it three questions.",
}
_TOGETHER = {  # commands that are in a module with others
    "mcp": "serve",
    "sweep": "evaluate",
    **dict.fromkeys(("add-source", "remove-source"), "sources"),
    **dict.fromkeys(("compact", "shrink", "reindex"), "rewrite"),
    **dict.fromkeys(("history", "rollback"), "generations"),
}
_OUTPUT_LOST = {errno.ENOSPC, errno.EIO, errno.EDQUOT}


class LazyGroup(click.Group):
    """A group whose commands are modules of this package, each imported at its first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which a newcomer needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None where there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ragidx.pipelines.cli.{_TOGETHER.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_") if cmd_name in _TOGETHER else "command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command; for an unknown name, an error with the nearest known one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'.{nearest(args[0], list(COMMANDS))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing one."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ragidx")
def cli() -> None:
    """Turn a folder of documents into a vector index, and ask it questions.

    \b
        ragidx build docs/
        ragidx query "why were pigeons chased out of an antenna?"
    """


def every_command() -> dict[str, click.Command]:
    """All commands by what is typed, each imported; of a group, those in it: `train head`."""
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        inner = command.commands if isinstance(command, click.Group) else {}
        found |= {f"{name} {one}": inner[one] for one in inner} or {name: command}
    return found


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit."""
    _silence_libraries()
    with interrupts.watched():
        _run(args)


def _silence_libraries() -> None:
    """Libraries tell nobody and write nothing elsewhere, here and in processes that are started; an environment that
    says otherwise is left as it is.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    if (fonts := user_cache("matplotlib")) is not None:  # else two folders of its own in the home, at a picture
        os.environ.setdefault("MPLCONFIGDIR", str(fonts))


def _run(args: list[str] | None) -> None:
    args = list(sys.argv[1:] if args is None else args)
    try:
        # Not `cli.main`: it ends a closed pipe with status 1.
        with cli.make_context("ragidx", args.copy()) as context:
            result = cli.invoke(context)
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_quietly(0)
    except click.exceptions.Exit as end:
        _leave(end.exit_code)
    except click.ClickException as fault:
        fault.message = without_passwords(fault.message, args)  # type: ignore[misc]  # it is what `show` prints
        fault.show()
        _leave(2)
    except (click.Abort, KeyboardInterrupt):
        _interrupted()
    except RagidxError as fault:
        _debug(args)
        _leave_if_interrupted()
        console.error(f"Error: {without_passwords(error_text(fault), args)}")
        _leave(fault.exit_code)
    except BaseException as fault:  # the outermost place: a defect is one line too, unless RAGIDX_DEBUG=1
        if not (isinstance(fault, Exception) or is_panic(fault)):
            raise
        _debug(args)
        _leave_if_interrupted()
        if isinstance(fault, OSError) and fault.errno in _OUTPUT_LOST and fault.filename is None:
            reason = os.strerror(fault.errno)
            console.error(f"Error: standard output: cannot write: {reason}\n  hint: write to a disk with free space")
            _leave_quietly(2)
        machine = machine_error(fault, str(getattr(fault, "filename", None) or ""))
        defect = (
            f"a bug in ragidx or in a library it uses: {type(fault).__name__}: {fault}\n"
            "  hint: run again with RAGIDX_DEBUG=1 for the traceback, and report it"
        )
        console.error(f"Error: {without_passwords(str(machine or defect), args)}")
        _leave(2)
    else:
        _leave(result if isinstance(result, int) else 0)


def _leave_if_interrupted() -> None:
    """A failure after Ctrl-C or SIGTERM is the interruption itself: a library turned it into another exception."""
    if interrupts.was_interrupted():
        _interrupted()


def _interrupted() -> None:
    click.echo("Interrupted.", err=True)
    _leave(interrupts.exit_status())


def _debug(args: list[str]) -> None:
    """Inside an except clause: raise again if RAGIDX_DEBUG=1, so that the traceback shows."""
    if os.environ.get("RAGIDX_DEBUG") == "1":
        import traceback  # which most runs do not show

        sys.excepthook = lambda *fault: console.error(
            without_passwords("".join(traceback.format_exception(*fault)).rstrip(), args)
        )
        raise  # noqa: PLE0704 - re-raises what the caller is handling


def _leave(status: int) -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _leave_quietly(status)
    sys.exit(status)


def _leave_quietly(status: int) -> Any:
    """The reader of our output is gone: no error. Replace the descriptor, so that nothing is written at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)
