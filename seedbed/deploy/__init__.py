"""Releases on a cluster, by way of helm and kubectl."""
