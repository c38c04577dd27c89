"""Replay: what each home costs, and what one on the device is worth."""
