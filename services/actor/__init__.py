"""Actor process: steps environments with the actions of a learner."""
