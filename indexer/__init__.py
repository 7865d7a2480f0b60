"""From chunks to an index on disk: specs, encoders, filters, the store and FAISS. It knows no corpus file and no command line."""
