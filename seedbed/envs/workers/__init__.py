"""Worker processes, over which the environments of a group are divided."""
