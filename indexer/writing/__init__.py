"""An index on disk, as writers make it: journal, segments, merging, commit, history and compaction."""
