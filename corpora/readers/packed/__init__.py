"""Files that hold other files: office documents and PDF, converted in a child process with limits."""
