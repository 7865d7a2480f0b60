"""PDF and office files, and how a zip file is opened. The readers lean on it."""
