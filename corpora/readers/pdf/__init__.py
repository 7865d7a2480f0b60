"""PDF: its words by their boxes, with rows of tables, fields, notes, and what of it is left out."""
