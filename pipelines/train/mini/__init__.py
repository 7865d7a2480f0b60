"""Training of mini, the bundled model: a static table, then decoder layers on top of it, then the folder that ships.

The three commands, in their order (each has --help):

    python -m ragidx.pipelines.train.mini.table  --corpora DIR --out DIR
    python -m ragidx.pipelines.train.mini.layers --corpora DIR --model DIR --out DIR --minutes 75
    python -m ragidx.pipelines.train.mini.export --model DIR --out DIR

`python benchmarks/methods.py` measures the result by method and filter. Nothing outside this package imports it, and
it is not part of the wheel.
"""
