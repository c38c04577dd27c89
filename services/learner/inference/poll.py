"""How threads wait."""

POLL_S = 0.2  # how often a thread that waits for work looks whether it should stop
