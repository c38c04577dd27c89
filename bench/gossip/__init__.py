"""Benchmark of gossip against all-reduce."""
