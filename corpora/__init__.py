"""From files to Documents and Chunks, and the evaluation sets. The innermost room: it knows no model and no vector."""
