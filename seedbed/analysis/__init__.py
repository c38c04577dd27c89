"""How far the learners are from each other, and the bounds of it (Assran et al. 2019, GALA)."""
