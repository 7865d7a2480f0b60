"""What several packages of this room share: stages of progress, resources of the machine, pictures, results."""
