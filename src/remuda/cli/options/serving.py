"""`--tls-san` for the certificate that our own CA signs, or `--tls-cert-file` and its companions for one that others did."""

from __future__ import annotations

import functools
import resource
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from remuda.gateway.server.serving_certificate import Files
if TYPE_CHECKING:
    from remuda.apiserver.http.connection_limits import MaxConnections


F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(dir_okay=False, path_type=Path)


def tls_options(function: F) -> F:
    """Adds the options; the command gets `tls`: the files, or None for a certificate of our own CA."""

    @click.option("--tls-cert-file", type=_FILE, metavar="FILE", help="Certificate (with its chain) to serve.")
    @click.option("--tls-private-key-file", type=_FILE, metavar="FILE", help="Its private key. A change of either is noticed.")
    @click.option("--tls-ca-file", type=_FILE, metavar="FILE", help="The CA that signed it, if clients don't know it.")
    @functools.wraps(function)
    def with_tls(
        *args: Any, tls_cert_file: Path | None, tls_private_key_file: Path | None, tls_ca_file: Path | None, **options: Any
    ) -> Any:
        return function(*args, tls=_files(tls_cert_file, tls_private_key_file, tls_ca_file), **options)

    return with_tls  # type: ignore[return-value]


def tls_san_option(what: str) -> Callable[[F], F]:
    """`--tls-san` for this kind of listener; the command gets all names that were said, however they were put together."""

    def names(context: click.Context, parameter: click.Parameter, said: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name.strip() for text in said for name in text.split(",") if name.strip())

    return click.option(
        "--tls-san",
        multiple=True,
        metavar="NAME[,NAME…]",
        envvar="REMUDA_TLS_SAN",
        callback=names,
        help=f"More names and addresses by which clients reach this {what}, for its certificate.",
    )


def advertise_option(shared: str) -> Callable[[F], F]:
    """`--advertise-address`; the command gets the text, which is valid."""

    def valid(context: click.Context, parameter: click.Parameter, said: str) -> str:
        from remuda.app.advertised_address import checked

        try:
            return checked(said, 1) and said if said else ""
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return click.option(
        "--advertise-address",
        metavar="HOST[:PORT]",
        default="",
        envvar="REMUDA_ADVERTISE_ADDRESS",
        callback=valid,
        help=f"The address by which other servers of the same state reach this one, not that of a load balancer.  "
        f"[default: that of --listen, or this machine's on the way to {shared}]",
    )


def _files(certificate: Path | None, key: Path | None, ca: Path | None) -> Files | None:
    if certificate is None and key is None:
        if ca is not None:
            raise click.BadParameter("needs --tls-cert-file", param_hint="--tls-ca-file")
        return None
    if certificate is None or key is None:
        missing = "--tls-cert-file" if certificate is None else "--tls-private-key-file"
        raise click.BadParameter("a certificate and its key go together", param_hint=missing)
    from remuda.gateway.server.serving_certificate import Files

    return Files(certificate.absolute(), key.absolute(), ca.absolute() if ca is not None else None)


# --- connections ----------------------------------------------------------------------------------------------------------
#
# `--connections-per-address`: how many connections one address may hold, the same for `serve` and `gateway`.

connections_option = click.option(
    "--connections-per-address",
    type=click.IntRange(1, 1_000_000),
    metavar="NUMBER",
    help="The number of connections that one address (of IPv6 a /64) may hold. "
    "[default: 4096, or half of what the limit of open files allows]",
)


def room(connections_per_address: int | None) -> MaxConnections:
    """The number of connections that this process may hold, once it has raised its limit of open files to the highest."""
    from remuda.apiserver.http.connection_limits import MaxConnections

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MaxConnections.within(1 << 20 if hard == resource.RLIM_INFINITY else hard, connections_per_address)


# --- job runner -----------------------------------------------------------------------------------------------------------
#
# `--job-runner`: who runs the Jobs that make and remove machines, the same for `serve` and `gateway`.

# As in `remuda.app.parts`, which would be slow to import for who only asks for help.
_RUNNERS = ("local", "cluster")


def job_runner_option(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--job-runner",
        type=click.Choice(_RUNNERS),
        default=default,
        show_default=True,
        help="The runner of Jobs that make machines: this server as processes (local), or the cluster as pods.",
    )
