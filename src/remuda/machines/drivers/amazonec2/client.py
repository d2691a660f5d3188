"""A client of EC2: boto3 in a thread, failures as sentences for the user, and calls repeated after a pause.

boto3's own retries are off, since they sleep on the real clock. An interrupted call may have been carried out: so each
call that creates something has a client token or a name that we kept before, and is safe to repeat.

A tenant names the endpoint, so every connection is checked here; and the role of the machine that this runs on is used only if
the policy permits requests to the metadata service.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from remuda.kube.network import outbound
from remuda.kube.network.outbound import AddressInfo, Policy, bare, log

from ...driver import DriverContext, Machine, Options
from ...errors import DriverError, Reason

_LONGEST_PAUSE = 20.0
# boto3's sessions are not made for several threads; their clients are.
_making = threading.Lock()
_sessions: dict[bool, Any] = {}
_METADATA = ipaddress.ip_address("169.254.169.254")


class Ec2:
    """`await ec2("describe_instances", "looking for …", InstanceIds=[…])`. Raises Refused; ImportError without boto3."""

    def __init__(self, options: Options, around: DriverContext) -> None:
        if options.on("insecure-transport") and not options.text("endpoint"):
            raise DriverError(Reason.INVALID, "insecureTransport needs an endpoint", field="insecureTransport")
        self._options = options
        self._around = around
        self._client: Any = None

    async def __call__(self, operation: str, doing: str, /, **parameters: Any) -> dict[str, Any]:
        tries = max(self._options.number("retries"), 0) + 1
        for attempt in range(1, tries + 1):
            try:
                return await asyncio.to_thread(self._call, operation, doing, parameters)
            except Ec2Refused as error:
                if attempt == tries or error.reason not in (Reason.THROTTLED, Reason.UNAVAILABLE):
                    raise
                pause = min(_LONGEST_PAUSE, 2.0**attempt) * self._around.rng.uniform(0.5, 1.0)
                self._around.say(f"{error.message}; again in {pause:.0f} s")
                await self._around.clock.sleep(pause)
        raise AssertionError("unreachable")

    async def pages(self, operation: str, doing: str, key: str, /, **parameters: Any) -> AsyncIterator[dict[str, Any]]:
        """Every element of the list `key`, page by page."""
        token = ""
        while True:
            answer = await self(operation, doing, **parameters, **({"NextToken": token} if token else {}))
            for element in answer.get(key) or ():
                yield element
            token = answer.get("NextToken") or ""
            if not token:
                return

    async def unless(self, codes: Collection[str], operation: str, doing: str, /, **parameters: Any) -> dict[str, Any] | None:
        """The answer; None when EC2 answers with one of these codes."""
        try:
            return await self(operation, doing, **parameters)
        except Ec2Refused as error:
            if error.code in codes:
                return None
            raise

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _call(self, operation: str, doing: str, parameters: dict[str, Any]) -> dict[str, Any]:
        exceptions = import_module("botocore.exceptions")
        unreadable = import_module("botocore.parsers").ResponseParserError
        try:
            if self._client is None:
                self._client = _client(self._options, self._around.outbound)
            answer: dict[str, Any] = getattr(self._client, operation)(**parameters)
            return answer
        except exceptions.ClientError as error:
            told = error.response.get("Error", {})
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
            if str(told.get("Code", "")) in ("", str(status)):
                # No error of EC2's: boto3 made it of an answer in which there was none.
                raise unreached(doing, error) from None
            raise refusal(doing, str(told.get("Code", "")), str(told.get("Message", "")), status) from None
        except exceptions.NoCredentialsError:
            raise Ec2Refused(Reason.AUTH_FAILED, _NO_CREDENTIALS, field="accessKey") from None
        except exceptions.ParamValidationError as error:
            raise Ec2Refused(Reason.INVALID, f"{doing} failed: {error}") from None
        except (exceptions.BotoCoreError, exceptions.HTTPClientError, unreadable, OSError, ValueError) as error:
            # boto3 raises ValueError for an endpoint that is not a URL.
            raise unreached(doing, error) from None


_NO_CREDENTIALS = "there are no AWS credentials: give the pool a cloud credential with an accessKey and a secretKey"


def _client(options: Options, policy: Policy) -> Any:
    config = import_module("botocore.config").Config(
        region_name=options.text("region"),
        connect_timeout=10,
        read_timeout=60,
        retries={"total_max_attempts": 1, "mode": "standard"},
        user_agent_extra="remuda",
    )
    credentials = {
        "aws_access_key_id": options.text("access-key"),
        "aws_secret_access_key": options.text("secret-key"),
        "aws_session_token": options.text("session-token"),
    }
    # Without a whole pair, boto3 looks where the other program does: its own files, then the role of the machine it runs on.
    known = credentials["aws_access_key_id"] and credentials["aws_secret_access_key"]
    given = {name: value for name, value in credentials.items() if value} if known else {}
    with _making:
        made = _session(policy).client("ec2", config=config, endpoint_url=_endpoint(options), **given)
    guard(made, policy)
    return made


def _session(policy: Policy) -> Any:
    """A session that does not ask a metadata service for a role, unless the policy permits that."""
    permitted = policy.permits(_METADATA)
    if permitted not in _sessions:
        core = import_module("botocore.session").Session()
        if not permitted:
            providers = core.get_component("credential_provider")
            for name in ("container-role", "iam-role"):
                providers.remove(name)
        _sessions[permitted] = import_module("boto3").Session(botocore_session=core)
    return _sessions[permitted]


def _endpoint(options: Options) -> str | None:
    named = options.text("endpoint")
    if not named or "://" in named:
        return named or None
    return f"{'http' if options.on('insecure-transport') else 'https'}://{named}"


# --- outbound connections -------------------------------------------------------------------------------------------------
#
# boto3's connections under the policy of :mod:`remuda.kube.network.outbound`: a name is looked up once, and connected to as
# checked.
#
# botocore makes connections with urllib3; each of them passes `_new_conn`, also a new one for a retry. Proxies are the
# administrator's and not subject to the policy; the host behind one is checked before it is asked for.


def guard(client: Any, policy: Policy) -> None:
    """Have a client's connections checked."""
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


# --- failures --------------------------------------------------------------------------------------------------------------
#
# The meaning of EC2's error codes for a user. Pure.

_BY_CODE: dict[str, tuple[Reason, str]] = {
    "AuthFailure": (Reason.AUTH_FAILED, "accessKey"),
    "InvalidClientTokenId": (Reason.AUTH_FAILED, "accessKey"),
    "UnrecognizedClientException": (Reason.AUTH_FAILED, "accessKey"),
    "SignatureDoesNotMatch": (Reason.AUTH_FAILED, "secretKey"),
    "ExpiredToken": (Reason.AUTH_FAILED, "sessionToken"),
    "ExpiredTokenException": (Reason.AUTH_FAILED, "sessionToken"),
    "RequestExpired": (Reason.AUTH_FAILED, ""),
    "MissingAuthenticationToken": (Reason.AUTH_FAILED, "accessKey"),
    "Blocked": (Reason.AUTH_FAILED, ""),
    "UnauthorizedOperation": (Reason.PERMISSION_DENIED, ""),
    "AccessDenied": (Reason.PERMISSION_DENIED, ""),
    "AccessDeniedException": (Reason.PERMISSION_DENIED, ""),
    "OperationNotPermitted": (Reason.PERMISSION_DENIED, ""),
    "OptInRequired": (Reason.PERMISSION_DENIED, ""),
    "PendingVerification": (Reason.PERMISSION_DENIED, ""),
    "MaxSpotInstanceCountExceeded": (Reason.QUOTA_EXCEEDED, "instanceType"),
    "InsufficientFreeAddressesInSubnet": (Reason.QUOTA_EXCEEDED, "subnetId"),
    "InsufficientInstanceCapacity": (Reason.OUT_OF_CAPACITY, "instanceType"),
    "InsufficientCapacity": (Reason.OUT_OF_CAPACITY, "instanceType"),
    "InsufficientHostCapacity": (Reason.OUT_OF_CAPACITY, "instanceType"),
    "InsufficientReservedInstanceCapacity": (Reason.OUT_OF_CAPACITY, "instanceType"),
    "SpotMaxPriceTooLow": (Reason.INVALID, "spotPrice"),
    "RequestLimitExceeded": (Reason.THROTTLED, ""),
    "Throttling": (Reason.THROTTLED, ""),
    "ThrottlingException": (Reason.THROTTLED, ""),
    "EC2ThrottledException": (Reason.THROTTLED, ""),
    "TooManyRequestsException": (Reason.THROTTLED, ""),
    "InternalError": (Reason.UNAVAILABLE, ""),
    "InternalFailure": (Reason.UNAVAILABLE, ""),
    "ServerInternal": (Reason.UNAVAILABLE, ""),
    "ServiceUnavailable": (Reason.UNAVAILABLE, ""),
    "Unavailable": (Reason.UNAVAILABLE, ""),
    "Unsupported": (Reason.INVALID, "instanceType"),
    "InvalidInstanceType": (Reason.INVALID, "instanceType"),
    "InvalidGroup.NotFound": (Reason.NOT_FOUND, "securityGroup"),
    "InvalidKeyPair.NotFound": (Reason.NOT_FOUND, "keypairName"),
    "InvalidSubnetID.NotFound": (Reason.NOT_FOUND, "subnetId"),
    "InvalidVpcID.NotFound": (Reason.NOT_FOUND, "vpcId"),
    "DependencyViolation": (Reason.CONFLICT, ""),
}
# Where neither the code nor its end says enough: a part of it, and the option that is to blame.
_BY_BEGINNING = {"InvalidAMIID": "ami", "InvalidSubnet": "subnetId", "InvalidVpc": "vpcId", "InvalidKey.": "sshKeyContents"}
_ADVICE = {
    Reason.AUTH_FAILED: "check the cloud credential's accessKey and secretKey, and this machine's clock",
    Reason.PERMISSION_DENIED: "let the credential's user do this in IAM",
    Reason.QUOTA_EXCEEDED: "raise the limit in AWS's Service Quotas, or use less",
    Reason.OUT_OF_CAPACITY: "try another zone or instanceType, or later",
    Reason.THROTTLED: "AWS asks for fewer calls; it is worth another try later",
}


class Ec2Refused(DriverError):
    """A call that EC2 answered with an error, or that did not get through (then `code` is empty)."""

    def __init__(self, reason: Reason, message: str, code: str = "", field: str = "") -> None:
        super().__init__(reason, message, field=field)
        self.code = code


def refusal(doing: str, code: str, said: str, status: int = 400) -> Ec2Refused:
    """`doing` says in a few words what was requested: "launching an instance"."""
    reason, field = _meaning(code, said, status)
    advice = _ADVICE.get(reason, "")
    text = f"{doing} failed: {said.strip().rstrip('.')} ({code})"
    return Ec2Refused(reason, f"{text}; {advice}" if advice else text, code, field)


def unreached(doing: str, error: BaseException) -> Ec2Refused:
    """The error for a call without a proper answer from EC2. It does not tell whether nothing answered, or something else did."""
    message = f"{doing} failed: {outbound.told(error, 'EC2')}"
    if outbound.is_refusal(error):
        return Ec2Refused(Reason.INVALID, message, field="endpoint")
    return Ec2Refused(Reason.UNAVAILABLE, message)


def _meaning(code: str, said: str, status: int) -> tuple[Reason, str]:
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code.endswith("LimitExceeded"):
        return Reason.QUOTA_EXCEEDED, "instanceType" if code in ("InstanceLimitExceeded", "VcpuLimitExceeded") else ""
    blamed = next((field for start, field in _BY_BEGINNING.items() if code.startswith(start)), "")
    if "IAM Instance Profile" in said or "iamInstanceProfile" in said:
        blamed = "iamInstanceProfile"
    if code.endswith((".NotFound", ".Unavailable", "NotFoundException")) or code == "NoSuchEntity":
        return Reason.NOT_FOUND, blamed
    if status >= 500:
        return Reason.UNAVAILABLE, ""
    if code.startswith(("Invalid", "Missing", "Malformed", "Unknown")):
        return Reason.INVALID, blamed
    return Reason.FAILED, blamed


# --- tags ---------------------------------------------------------------------------------------------------------------
#
# The user's, and ours, by which all resources are found again. No slash in ours: EC2 refuses such keys where tags are shown to
# the instance itself.

OWNER, MACHINE, TOKEN = "remuda:owner", "remuda:machine", "remuda:token"

Tags = dict[str, str]


def parsed(said: str) -> Tags:
    """`k,v,k,v` → {k: v}. Raises DriverError."""
    parts = said.split(",") if said else []
    if len(parts) % 2:
        raise DriverError(Reason.INVALID, "tags must be pairs: key1,value1,key2,value2", field="tags")
    return dict(zip(parts[::2], parts[1::2], strict=True))


def ours(machine: Machine) -> Tags:
    found = {OWNER: machine.owner, MACHINE: machine.name, TOKEN: machine.token}
    return {key: value for key, value in found.items() if value}


def specification(kind: str, tags: Mapping[str, str]) -> dict[str, Any]:
    return {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


def read(described: Mapping[str, Any]) -> Tags:
    """The tags of an object that EC2 describes."""
    return {str(tag["Key"]): str(tag.get("Value", "")) for tag in described.get("Tags") or ()}


def having(key: str, values: Iterable[str]) -> dict[str, Any]:
    """A filter."""
    return {"Name": f"tag:{key}", "Values": list(values)}
