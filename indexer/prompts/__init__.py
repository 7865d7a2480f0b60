"""Text to token ids: templates, instructions, tokenizers, and what the model reads."""
