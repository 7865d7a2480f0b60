"""Precomputed vectors into an index: IndexWriter, build_vectors, and the model that answers questions."""
