"""Consensus distance of the learners of a run, from the files that they wrote."""
