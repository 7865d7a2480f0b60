"""Files of records: JSON, JSON Lines, CSV, parquet and Arrow; a record becomes a document."""
