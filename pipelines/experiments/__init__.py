"""Comparing: configurations on judged queries, candidates beside what an index has, training, what a model sees."""
