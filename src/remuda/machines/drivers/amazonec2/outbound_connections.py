"""boto3's connections under the policy of :mod:`remuda.kube.network.outbound`: a name is looked up once, and connected to as
checked.

botocore makes connections with urllib3; each of them passes `_new_conn`, also a new one for a retry. Proxies are the
administrator's and not subject to the policy; the host behind one is checked before it is asked for.
"""

from __future__ import annotations

import socket
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from remuda.kube.network.outbound import AddressInfo, Policy, bare, log


def guard(client: Any, policy: Policy) -> None:
    """Let a client's connections be checked."""
    request = import_module("botocore.awsrequest")

    class Plain(request.AWSHTTPConnection):  # type: ignore[misc, name-defined]
        def _new_conn(self) -> socket.socket:
            return _connected(self, policy, super()._new_conn)

    class Secure(request.AWSHTTPSConnection):  # type: ignore[misc, name-defined]
        def _new_conn(self) -> socket.socket:
            return _connected(self, policy, super()._new_conn)

    class PlainPool(request.AWSHTTPConnectionPool):  # type: ignore[misc, name-defined]
        ConnectionCls = Plain

    class SecurePool(request.AWSHTTPSConnectionPool):  # type: ignore[misc, name-defined]
        ConnectionCls = Secure

    session = client._endpoint.http_session
    session._pool_classes_by_scheme.update(http=PlainPool, https=SecurePool)

    def checked(request: Any, **_: Any) -> None:
        if session._proxy_config.proxy_url_for(request.url):
            _check_ahead(policy, urlsplit(request.url).hostname or "")

    client.meta.events.register_first("before-send.ec2", checked)


def _connected(connection: Any, policy: Policy, connect: Any) -> socket.socket:
    """`connect` is urllib3's own way, which looks the name up itself: so it is given an address instead."""
    if connection.proxy is not None:
        return connect()  # type: ignore[no-any-return]
    name = connection._dns_host
    found = _looked_up(name, connection.port)
    policy.check(name, found)
    failure = OSError("the name has no address")
    for info in found:
        connection._dns_host = info[4][0]
        try:
            return connect()  # type: ignore[no-any-return]
        except import_module("urllib3.exceptions").HTTPError as error:
            failure = error
        finally:
            connection._dns_host = name
    raise failure


def _check_ahead(policy: Policy, host: str) -> None:
    """A host that a proxy will look up. A name that is unknown here is the proxy's to know."""
    try:
        found = _looked_up(host, 0)
    except (OSError, UnicodeError) as error:
        log.info("%s is left to the proxy: %s", host, error)
        return
    policy.check(host, found)


def _looked_up(host: str, port: int) -> list[AddressInfo]:
    found = socket.getaddrinfo(bare(host), port, type=socket.SOCK_STREAM)
    return [(int(family), int(kind), protocol, name, where) for family, kind, protocol, name, where in found]
