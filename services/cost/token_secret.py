"""The Secret with the token files of a release, which a Job of the chart creates."""

import logging

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from seedbed.runtime.tokens import new_token_files
from seedbed.services.cost.cluster import load_credentials
from seedbed.services.cost.pods import TIMEOUT_S

log = logging.getLogger(__name__)


def create_secret(name: str, namespace: str) -> None:
    """Create the Secret, with one key for each role; leave an existing one as it is.

    Raises:
        SeedbedError: CONFIG, there are no credentials of a cluster.
        kubernetes.client.ApiException: the API server refuses.
    """
    load_credentials()
    secret = client.V1Secret(
        metadata=client.V1ObjectMeta(
            name=name,
            labels={"app.kubernetes.io/name": "seedbed", "app.kubernetes.io/part-of": "seedbed"},
        ),
        string_data={str(role): text for role, text in new_token_files().items()},
    )
    try:
        client.CoreV1Api().create_namespaced_secret(namespace, secret, _request_timeout=TIMEOUT_S)
    except ApiException as error:
        if error.status != 409:
            raise
        log.info("Secret %s is there already, and stays as it is", name)
    else:
        log.info("Secret %s created", name)


def delete_secret(name: str, namespace: str) -> None:
    """Delete the Secret, if it is there."""
    load_credentials()
    try:
        client.CoreV1Api().delete_namespaced_secret(name, namespace, _request_timeout=TIMEOUT_S)
    except ApiException as error:
        if error.status != 404:
            raise
