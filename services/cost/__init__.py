"""The cost meter: what a release's pods cost, and the end of an experiment on Kubernetes."""
