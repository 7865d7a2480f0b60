"""PDF and office files in a child process, and how a zip file is opened. The readers lean on it."""
