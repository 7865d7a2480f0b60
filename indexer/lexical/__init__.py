"""Words on disk: text to terms, postings of a segment, and BM25."""
