"""Other programs: tables of vectors in engines, files of rows, and frameworks."""
