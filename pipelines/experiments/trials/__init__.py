"""A candidate beside what an index has: another model, a matrix, a table for questions; kept if it is not worse."""
