"""What happens to one file, here or in a worker: it is read and cut; how workers are started, told and heard."""
