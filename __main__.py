"""The command line: `python -m ragidx`, and the script `ragidx`.

Until the command line is imported, Ctrl-C ends the process at once: there is nothing to keep, and Python's own answer
would be a traceback out of an import.
"""

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line and exit."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not ignored, as under nohup
    if ours:
        signal.signal(signal.SIGINT, _leave)
    from ragidx.pipelines.cli.main import main as run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"Interrupted.\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
