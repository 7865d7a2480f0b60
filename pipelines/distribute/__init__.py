"""A build on many machines: a corpus is divided, each shard is built by itself, and one commit joins them.

    division = divide("corpus/", 8, "stage/", "index/")        here
    build_shard(division, 3)                                   on any machine that sees the same folders
    commit(division)                                           here, when all are done

Of vectors that many tasks have: `divide_vectors`, `build_vector_shard` in each, and `commit`.
Who starts the shards, and starts a failed one again, is not known here, but in `build_on_ray`.
"""

from ragidx.pipelines.distribute.commit import commit
from ragidx.pipelines.distribute.descriptor import Descriptor
from ragidx.pipelines.distribute.divide import divide
from ragidx.pipelines.distribute.division import Division
from ragidx.pipelines.distribute.on_ray import build_on_ray
from ragidx.pipelines.distribute.shard import build_shard
from ragidx.pipelines.distribute.vectors import build_vector_shard, divide_vectors

__all__ = [
    "Descriptor",
    "Division",
    "build_on_ray",
    "build_shard",
    "build_vector_shard",
    "commit",
    "divide",
    "divide_vectors",
]
