"""Training of mini, the bundled model: a static table, then decoder layers on top of it.

The two commands, in their order (each has --help); each writes a model folder:

    python -m ragidx.benchmarks.recipes.mini_decoder.table  --corpora DIR --out START
    python -m ragidx.benchmarks.recipes.mini_decoder.layers --corpora DIR --model START --out DIR

`python benchmarks/results.py` measures the result by method and filter. Nothing outside this package imports it, and
it is not part of the wheel.
"""
