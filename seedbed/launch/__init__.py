"""Processes of a run on this machine: learners, actors, and their restarts."""
