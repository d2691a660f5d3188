"""Clients of workload clusters from their kubeconfigs, over HTTPS.

A workload cluster's kubeconfig comes from any user who may write a secret. So it may name no program to run and no file of this
machine: everything is inline.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from remuda.client.https import HttpsClient
from remuda.client.interface import Client
from remuda.client.kubeconfig import ConfigError, Target, parse, select
from remuda.kube.clock import SYSTEM_CLOCK, Clock
from remuda.kube.network.outbound import Policy
from remuda.kube.network.outbound_http import Current
from remuda.kube.objects import Key

_FILES = ("certificate-authority", "client-certificate", "client-key")


class HttpsConnector:
    """`seconds`: the timeout of one request (watches may take longer). `policy`: the addresses that may be connected to."""

    def __init__(
        self, clock: Clock = SYSTEM_CLOCK, *, seconds: float = 10.0, connections: int = 10, policy: Current = Policy.of
    ) -> None:
        self._clock = clock
        self._policy = policy
        self._seconds = seconds
        self._connections = connections

    async def connect(self, cluster: Key, kubeconfig: bytes) -> Client:
        try:
            return HttpsClient(
                workload_target(kubeconfig),
                self._clock,
                connections=self._connections,
                request_seconds=self._seconds,
                policy=self._policy,
            )
        except (ConfigError, ssl.SSLError) as error:
            raise ValueError(f"the kubeconfig of {cluster} can't be used: {error}") from None


def workload_target(kubeconfig: bytes) -> Target:
    """The API server of a kubeconfig that holds everything inline. Raises ConfigError."""
    config = parse(kubeconfig, Path("kubeconfig"))
    for users in config["users"].values():
        if users.get("exec"):
            raise ConfigError("ExecProvider is not supported in ClusterCache")
        if users.get("auth-provider"):
            raise ConfigError("AuthProvider is not supported in ClusterCache")
    for section in ("clusters", "users"):
        for name, entry in config[section].items():
            for field in _FILES:
                if entry.get(field) and not entry.get(f"{field}-data"):
                    raise ConfigError(f"{section} {name} names a file ({field}): put what is in it inline")
    for name, entry in config["users"].items():
        # A tokenFile would win over an inline token: the workload's API server would receive a file of ours as a token.
        if entry.get("tokenFile"):
            raise ConfigError(f"users {name} names a file (tokenFile): put what is in it inline, as token")
    return select(config)
