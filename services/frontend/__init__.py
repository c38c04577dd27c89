"""The front end: sockets of actors in a process of their own, beside the learner."""
