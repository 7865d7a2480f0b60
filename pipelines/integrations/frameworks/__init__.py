"""Adapters for other frameworks; each only translates."""
