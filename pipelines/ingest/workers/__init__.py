"""What happens to one file, in this process or in another: it is read, and its documents are cut."""
