"""Hosts that a foreign driver's options name, checked before the driver runs; and what it says of connections, in our words.

The program connects by itself, so a name that changes between the check and its own lookup, a redirect, or an address that is in
no option can't be kept from it: where that matters, confine the network of Jobs.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from remuda.kube.network import outbound
from remuda.kube.network.host_fields import names_host
from remuda.kube.network.outbound import Policy, log

from .. import credential_variables
from ..errors import DriverError, Reason

# What Go says of a connection that did not come about. Which of these it was tells whether a port is open.
_FAILED = re.compile(
    r"dial (?:tcp|udp)\d?\b.*|lookup \S+(?: on \S+)?: .*"
    r"|(?:connect: )?(?:connection (?:refused|timed out|reset by peer)|no route to host|network is unreachable)"
    r"|i/o timeout|TLS handshake timeout|context deadline exceeded.*|no such host"
    r"|malformed HTTP response.*|server gave HTTP response to HTTPS client|tls: .*|x509: .*|ssh: handshake failed.*",
    re.IGNORECASE,
)


async def check(policy: Policy, driver: str, words: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raises DriverError if an option, or a field of the cloud credential, names a host that the policy refuses."""
    for option, value in (*_options(words, driver), *_variables(driver, environ)):
        host = host_of(option, value)
        if not host:
            continue
        try:
            await outbound.check_ahead(policy, host)
        except outbound.Refused as error:
            raise DriverError(Reason.INVALID, outbound.told(error, f"{option}: {host}")) from None


def _options(words: Sequence[str], driver: str) -> Iterator[tuple[str, str]]:
    """The driver's own options, by name, and their values, in both spellings."""
    prefix = f"--{driver}-"
    for word, following in zip(words, (*words[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        # `--url` is of the driver `none`, which has no prefix.
        if name.startswith(prefix) or name == "--url":
            yield name, value if equals else "" if following.startswith("--") else following


def _variables(driver: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    prefix = credential_variables.variable(driver, "")
    return ((name, value) for name, value in environ.items() if name.startswith(prefix))


def host_of(option: str, value: str) -> str:
    """The host that an option's value names; "" for one that names none."""
    value = value.strip()
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(value.strip("[]")))
    with contextlib.suppress(ValueError):
        if "://" in value or names_host(option):
            return urlsplit(value if "://" in value else f"//{value}").hostname or ""
    return ""


def plainly(line: str) -> str:
    """A line of the program's, without the reason for which a connection failed."""
    short = _FAILED.sub(outbound.UNREACHABLE, line)
    if short != line:
        log.info("%s", line)
    return short
