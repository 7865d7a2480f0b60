"""An index on disk, as readers see it: manifest, segments, deletions, look-up and checks."""
