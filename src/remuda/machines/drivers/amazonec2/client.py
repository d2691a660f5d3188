"""The way to EC2: boto3 in a thread, failures worded by :mod:`.failures`, and calls made again after a pause.

boto3's own retries are off, since they sleep on the real clock. A call that was cut may have been carried out: so what makes
something carries a client token or a name that we kept before, and is safe to repeat.

A tenant names the endpoint, so every connection is made by :mod:`.outbound_connections`; and the role of the machine that this
runs on is used only where the policy lets the metadata service be asked for it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import threading
from collections.abc import AsyncIterator, Collection
from importlib import import_module
from typing import Any

from remuda.kube.network.outbound import Policy

from ...driver import Options, Surroundings
from ...errors import DriverError, Reason
from . import outbound_connections
from .failures import Refused, refusal, unreached

_LONGEST_PAUSE = 20.0
# boto3's sessions are not made for several threads; their clients are.
_making = threading.Lock()
_sessions: dict[bool, Any] = {}
_METADATA = ipaddress.ip_address("169.254.169.254")


class Ec2:
    """`await ec2("describe_instances", "looking for …", InstanceIds=[…])`. Raises Refused; ImportError without boto3."""

    def __init__(self, options: Options, around: Surroundings) -> None:
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
            except Refused as error:
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
        """None when EC2 answers with one of these codes."""
        try:
            return await self(operation, doing, **parameters)
        except Refused as error:
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
            raise Refused(Reason.AUTH_FAILED, _NO_CREDENTIALS, field="accessKey") from None
        except exceptions.ParamValidationError as error:
            raise Refused(Reason.INVALID, f"{doing} failed: {error}") from None
        except (exceptions.BotoCoreError, exceptions.HTTPClientError, unreadable, OSError, ValueError) as error:
            # ValueError is what boto3 says of an endpoint that is no URL.
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
    outbound_connections.guard(made, policy)
    return made


def _session(policy: Policy) -> Any:
    """Without the ways by which boto3 would ask a metadata service for a role, unless the policy permits that."""
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
