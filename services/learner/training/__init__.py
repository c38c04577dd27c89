"""Training: batch sources, the prefetch thread and the training thread."""
