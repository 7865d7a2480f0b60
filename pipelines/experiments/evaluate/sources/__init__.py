"""What is measured: the vectors of a corpus, an index or pairs of sentences, and the series of widths made of them."""
