"""Learners that exchange parameters or gradients with each other."""
