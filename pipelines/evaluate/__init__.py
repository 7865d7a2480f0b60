"""Measures of a run, and which difference between two runs is real."""
