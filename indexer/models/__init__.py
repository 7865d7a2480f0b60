"""Models on disk: what a model name means, presets, single tensors, LoRA adapters; and the bundled model."""
