"""`ragidx doctor`: the machine, the packages, and whether a model runs as its method needs."""
