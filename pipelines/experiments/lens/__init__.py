"""`ragidx lens`: the tokens that a vector writes, and the spectrum of a model's head."""
