"""Deleting, compacting, shrinking and reindexing."""
