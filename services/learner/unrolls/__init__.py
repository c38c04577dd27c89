"""Unrolls: written by sessions, queued, joined to training batches."""
