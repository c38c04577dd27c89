"""Controller of a set of runs on a cluster: it starts and ends their releases under one budget."""
