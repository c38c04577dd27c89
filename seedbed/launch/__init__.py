"""Several learners on this machine, seen as one run."""
