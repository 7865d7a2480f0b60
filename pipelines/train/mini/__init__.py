"""How the bundled model was made. Not part of the wheel."""
