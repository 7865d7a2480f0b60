"""Text recognition: engines, pages, pictures."""
