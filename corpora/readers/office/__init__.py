"""PDF and office files. The readers lean on it."""
