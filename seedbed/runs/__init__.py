"""Run directories: locked, resumed, never deleted unasked."""
