"""Sets of runs: what they try, where they are, and what drives them."""
