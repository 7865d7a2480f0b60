"""`python -m ragidx`: the command line."""

from ragidx.pipelines.cli.main import main

if __name__ == "__main__":
    main()
