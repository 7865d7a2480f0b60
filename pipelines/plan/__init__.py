"""`ragidx build --plan`: what a build would take."""
