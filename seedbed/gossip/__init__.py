"""Exchange of parameters or gradients between the learners of a run."""
