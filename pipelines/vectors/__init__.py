"""Precomputed vectors into an index: RowWriter, build_vectors, and the model that answers questions."""
