"""The volume claims of a release, which cost until they are deleted."""

import logging
import math
import time
from collections.abc import Callable
from typing import Any

from kubernetes.client import CoreV1Api

from seedbed.services.cost.pods import TIMEOUT_S

log = logging.getLogger(__name__)

INTERVAL_S = 60.0


class Claims:
    """Volume claims as of the last list, which is made anew every minute."""

    def __init__(
        self,
        core: CoreV1Api,
        namespace: str,
        selector: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """List nothing yet.

        Args:
            core: The API.
            namespace: Namespace of the claims.
            selector: Label selector of the claims.
            clock: Returns monotonic time, in seconds.
        """
        self._core, self._namespace, self._selector = core, namespace, selector
        self._clock = clock
        self._claims: list[Any] = []
        self._listed_at = -math.inf

    def present(self) -> list[Any]:
        """Return the `V1PersistentVolumeClaim`s; [] where they were never listed."""
        if self._clock() - self._listed_at >= INTERVAL_S:
            self._listed_at = self._clock()
            try:
                self._claims = self._core.list_namespaced_persistent_volume_claim(
                    self._namespace, label_selector=self._selector, _request_timeout=TIMEOUT_S
                ).items
            except Exception as error:  # the pods' bill does not wait for the volumes'
                log.warning(
                    "volume claims cannot be listed (%s): the last list counts; without the right, "
                    "helm upgrade gives it",
                    " ".join(str(error).split())[:200],
                )
        return self._claims
