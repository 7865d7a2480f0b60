"""From chunks to an index on disk: specs, encoders, filters, the store, FAISS.

It knows no file of a corpus and no command line.
"""
