"""`ragidx tune`: which layer, filter and search suit a corpus and a model."""
