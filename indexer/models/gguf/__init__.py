"""Decoders in GGUF files: header, tensors, architectures, tokenizer; and which file a name means."""
