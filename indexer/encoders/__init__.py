"""Texts to raw vectors: the methods, backbones, pooling, and the kinds of encoder."""
