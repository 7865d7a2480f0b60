"""FAISS: index types, its files, search, tuning, prefixes and GPUs."""
