"""Storages of a replay buffer as the learner uses them: its RAM, the device, shards."""
