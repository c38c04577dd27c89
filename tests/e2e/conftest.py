"""Fixtures of all cases on a cluster."""

from tests.e2e.release import another_namespace, namespace

__all__ = ["another_namespace", "namespace"]
