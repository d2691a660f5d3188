"""`remuda kubeconfig`: a kubeconfig for the clusters of a server one is logged in to, or that server's administrator's.

After a login the server makes one for the user, with a context for the server itself, too. On the server's own machine, without
a login, it is the file of its data directory, or of a cluster the one that its controllers use (:mod:`..remote.kubeconfigs`).
:mod:`..remote.kubeconfigs` adds any to what a person has.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..exit_codes import Code, Failure
from ..options.locations import data_dir_option
from ..remote.login_file import Logins, complete_names
from ..views.output import write_utf8

if TYPE_CHECKING:
    from ..remote.connection import Remote

Obj = dict[str, Any]
_ACTION = "?action=generateKubeconfig"


@click.command()
@click.argument("clusters", metavar="[CLUSTER]…", nargs=-1)
@data_dir_option
@click.option("--admin", is_flag=True, help="The administrator's kubeconfig of the data directory, also when logged in.")
@click.option("--login", default="", metavar="NAME", shell_complete=complete_names, help="The login to use.")
@click.option("--direct", is_flag=True, help="Add contexts that bypass the server, for clusters with an authorised endpoint.")
@click.option(
    "--output", "output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it to a new file."
)
@click.option(
    "--path", "path_only", is_flag=True, help="Print the path of the administrator's kubeconfig instead of its content."
)
@click.option("--merge", is_flag=True, help="Add it to your kubeconfig; the old file is kept beside it.")
@click.option("--into", type=click.Path(dir_okay=False, path_type=Path), help="With --merge: the file to add it to.")
@click.option(
    "--name",
    metavar="NAME",
    default="remuda",
    show_default=True,
    help="With --merge: the name of the administrator's cluster and context.",
)
@click.option("--use", is_flag=True, help="With --merge: make it the current context.")
@click.option("--force", is_flag=True, help="With --merge: replace another cluster of that name. With --output: an old file.")
def command(
    clusters: tuple[str, ...],
    data_dir: Path,
    admin: bool,
    login: str,
    direct: bool,
    output: Path | None,
    path_only: bool,
    merge: bool,
    into: Path | None,
    name: str,
    use: bool,
    force: bool,
) -> None:
    """Print or merge a kubeconfig.

    After a login it has a context for each cluster that you may use and one for the server, in which clusters are declared; or
    only for the clusters that are named. Without a login, or with --admin, it is the administrator's of the data directory; of a
    cluster that is named, the one that controllers use.
    Without --into, --merge adds to the first file of $KUBECONFIG, else to ~/.kube/config.
    """
    if not merge and (into is not None or use):
        raise click.UsageError("--into and --use need --merge")
    if force and not merge and output is None:
        raise click.UsageError("--force needs --merge or --output")
    if merge and output is not None:
        raise click.UsageError("--merge and --output exclude each other")
    remote = _remote(clusters, login, admin=admin or path_only or _said_data_dir())
    if remote is None:
        own = data_dir.absolute() / "kubeconfig"
        if direct or (clusters and not own.exists()):
            raise Failure("log in to get a cluster's kubeconfig: remuda login URL", Code.NOT_FOUND)
        content = _own(own)
        if path_only:
            click.echo(str(own))
        elif clusters:
            from ..remote.kubeconfigs import of_clusters

            _deliver(of_clusters(own, clusters), "", output, into, merge=merge, use=use, force=force)
        else:
            _deliver(content, name, output, into, merge=merge, use=use, force=force)
        return
    _deliver(_generated(remote, clusters, direct), "", output, into, merge=merge, use=use, force=force)


def _said_data_dir() -> bool:
    return click.get_current_context().get_parameter_source("data_dir") is click.core.ParameterSource.COMMANDLINE


def _remote(clusters: tuple[str, ...], login: str, *, admin: bool) -> Remote | None:
    """The server to ask; None for the data directory's own."""
    if admin:
        if login:
            raise click.UsageError("--login and --admin exclude each other")
        return None
    found = Logins().get(login)
    if found is None and login:
        raise Failure(f"there is no login {login}: see remuda login --list", Code.NOT_FOUND)
    if found is None:
        return None
    from ..remote.connection import Remote, target_of

    return Remote(target_of(found), found.name)


def _generated(remote: Remote, clusters: tuple[str, ...], direct: bool) -> str:
    from remuda.kube.encoding import yamlio

    body: Obj = {"direct": direct, **({"clusters": list(clusters)} if clusters else {"server": True})}
    answer = remote.ask("POST", f"/v3/clusters{_ACTION}", body)
    config = answer.get("config") if isinstance(answer, dict) else None
    if not isinstance(config, str):
        raise Failure("the server did not answer with a kubeconfig")
    if not (yamlio.loads(config) or {}).get("contexts"):
        raise Failure("there is no cluster yet that you may use", Code.NOT_FOUND)
    return config


def _own(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        message = f"there is no kubeconfig in {path.parent}: start a server there first, with remuda serve"
        raise Failure(message, Code.NOT_FOUND) from None
    except PermissionError:
        raise Failure(f"{path} can't be read by this user: run this as the user that runs the server", Code.NOT_ALLOWED) from None


def _deliver(content: str, name: str, output: Path | None, into: Path | None, *, merge: bool, use: bool, force: bool) -> None:
    """`name` renames the administrator's; "" leaves what the server named."""
    from ..remote import kubeconfigs

    if output is not None:
        kubeconfigs.write_new(output, content, force=force)
        click.echo(f"written to {output}")
    elif merge:
        kubeconfigs.merge(content, into, name, use=use, force=force)
    else:
        write_utf8(content)
