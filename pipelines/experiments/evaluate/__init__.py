"""How good rankings are, and which difference between two of them is real."""
