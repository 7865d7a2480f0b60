"""From a question to hits: opening an index, encoding the query, conditions on metadata, what is shown of them."""
