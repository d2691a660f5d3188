"""ClusterRegistrationToken: how a cluster, or a node of one, makes itself known. The token itself is in a Secret.

Commands have `{token}` in them, which is filled in for who may read that Secret (protocols.md §10.2).
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from ...cattle import Text
from ...schema import AtLeast, Doc, Int64, Object


class RegistrationTokenSpec(TypedDict, total=False):
    """What the token is for."""

    clusterName: Annotated[Text, Doc("The id of the cluster; the namespace of this object.")]
    gracePeriod: Annotated[
        Int64 | None, Doc("How many minutes a replaced token is still good; 0: as the settings say."), AtLeast(0)
    ]
    ttl: Annotated[
        Int64 | None, Doc("How many minutes a token is good before it is replaced; 0: as the settings say."), AtLeast(0)
    ]


class RegistrationTokenStatus(TypedDict, total=False):
    """How it is used."""

    command: Annotated[Text, Doc("Imports a cluster.")]
    expiresAt: Annotated[Text, Doc("When the token is replaced, in RFC 3339.")]
    gracePeriodExpiresAt: Annotated[Text, Doc("Until when the token before it is good, in RFC 3339.")]
    insecureCommand: Annotated[Text, Doc("Imports a cluster, without verifying this server.")]
    insecureNodeCommand: Annotated[Text, Doc("Registers a node that runs Linux, without verifying this server.")]
    insecureWindowsNodeCommand: Annotated[Text, Doc("Registers a node that runs Windows, without verifying this server.")]
    manifestUrl: Annotated[Text, Doc("Where the manifest is that imports a cluster.")]
    nodeCommand: Annotated[Text, Doc("Registers a node that runs Linux; say its roles behind it.")]
    token: Annotated[Text, Doc("Empty; in older objects the token.")]
    tokenSecretName: Annotated[Text, Doc("The Secret with the token, in the same namespace.")]
    windowsNodeCommand: Annotated[Text, Doc("Registers a node that runs Windows.")]


class ClusterRegistrationToken(Object, total=False):
    """How a cluster, or a node of one, makes itself known."""

    spec: RegistrationTokenSpec
    status: RegistrationTokenStatus
