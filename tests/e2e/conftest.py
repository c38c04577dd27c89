"""The cluster that KUBECONFIG names, with images loaded: `make e2e`."""

from tests.e2e.release import namespace

__all__ = ["namespace"]
