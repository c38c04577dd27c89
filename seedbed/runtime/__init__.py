"""The process: threads, signals, files, exit codes, limits, metrics over HTTP."""
