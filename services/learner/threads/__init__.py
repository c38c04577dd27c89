"""The three threads of section 3 of the SEED paper: inference, prefetch and training."""

from services.learner.threads.inference import InferenceThread, answer_requests
from services.learner.threads.poll import POLL_S
from services.learner.threads.prefetch import PrefetchThread
from services.learner.threads.training import TrainingThread

__all__ = ["POLL_S", "InferenceThread", "PrefetchThread", "TrainingThread", "answer_requests"]
