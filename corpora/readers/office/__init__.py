"""Office files, and the converters of files that need to seek. The readers lean on it."""
