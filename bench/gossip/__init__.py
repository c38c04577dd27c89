"""Gossip against all-reduce."""
