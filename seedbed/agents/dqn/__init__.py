"""DQN from replay."""
