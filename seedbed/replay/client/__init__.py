"""Where the learner keeps its experience, and how training draws from it."""
