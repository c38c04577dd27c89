"""Run directories: locked by one process, resumed, never deleted unasked."""
