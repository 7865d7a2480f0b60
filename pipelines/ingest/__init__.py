"""`ragidx build`: a corpus into an index."""
