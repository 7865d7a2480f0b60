"""Training objectives of the methods; in `mini`, how the bundled model was made."""
