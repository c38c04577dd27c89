"""Seedbed: SEED RL for Kubernetes. One folder a service; `docs/architecture.md` is the map."""
