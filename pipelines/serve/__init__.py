"""The service: one process that answers people, programs and agents. Extra `serve`."""
