"""Conditions on metadata: the language, its evaluation, and masks over an index's rows."""
