"""Streams between learners: parameters, statuses and segments of a sum."""
