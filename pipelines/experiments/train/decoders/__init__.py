"""Training of a decoder itself, by LoRA or in full: contrastive, SimCSE, masked prediction; and its export."""
