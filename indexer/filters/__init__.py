"""EmbedFilter and the other filters: a raw vector (d) to a narrower one (k)."""
