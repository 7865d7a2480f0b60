"""Tables of vectors in the engines that people run: the rows of an index are written there, and asked there.

"lancedb:DIR" -> Target -> a table: its `AboutTable`, rows by vector, by words, by condition
"""
