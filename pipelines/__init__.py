"""What ties the rooms together over a whole corpus: build, evaluate, train, and the command line."""
