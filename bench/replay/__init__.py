"""Costs of each replay storage, and the value of one on the device."""
