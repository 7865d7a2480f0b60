"""`ragidx sweep`: storage, time and quality by width, filter and index type."""
