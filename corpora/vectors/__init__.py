"""Files of precomputed vectors: parquet, Arrow and .npy, read in batches."""
