"""A stand-in for the distributions k3s and RKE2, for tests: the remuda distribution under their names.

It is not k3s and not RKE2. It honours what plans use of them, on a real etcd: the installer image with its `run.sh`, variables,
units, paths and ports, the configuration, `etcd-snapshot`, `server --cluster-reset`, `certificate rotate`, `secrets-encrypt`,
`RT-killall.sh`. So whole operations of those runtimes run end to end; that the plans are right for the real ones is shown by
golden plans alone. :func:`install` writes the image; `program.py` is the program in it.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from remuda.images import installer
from remuda.images.installer import Etcd
from remuda.images.layout import Image, Layout
from remuda.images.tree import QUICK, Tree, layer_of
from remuda.provisioning.releases.distributions import Runtime
from tests.real import need

_SCRIPTS = ("run.sh", "uninstall.sh", "killall.sh")
_PROGRAM = Path(__file__).with_name("program.py")
_LAUNCHED = """-m remuda distro "$@"\\n' "$(word "$DATA")" "$(word "$PYTHON")\""""


def install(images: Path, runtime: Runtime, *versions: str) -> None:
    """Write the installer images of these versions, from which a server on that directory serves them."""
    shared = [layer_of(_tree(runtime), "a stand-in", 0, QUICK)]
    made = {}
    for version in versions:
        own = Tree()
        own.file("version", f"{version}\n")
        made[installer.tag_of(version)] = Image(installer.own_architecture(), [*shared, layer_of(own, version, 0)], {}, {}, 0)
    Layout(images / f"rancher/system-agent-installer-{runtime.name}").write_all(made)


def _tree(runtime: Runtime) -> Tree:
    etcd = need.programs("etcd")
    tree = installer.etcd_tree(Etcd(etcd["etcd"]))
    source = Path(installer.__file__).parent
    for name in _SCRIPTS:
        tree.file(name, _renamed((source / name).read_text(), runtime), 0o755)
    tree.file("bin/standin.py", _PROGRAM.read_bytes(), 0o644)
    kubectl = need.programs("kubernetes")["kubectl"]
    tree.file("bin/kubectl", f'#!/bin/sh\nexec {shlex.quote(str(kubectl))} "$@"\n', 0o755)
    return tree


def _renamed(text: str, runtime: Runtime) -> str:
    name, prefix = runtime.name, runtime.env_prefix
    launched = f"""%s {name} "$@"\\n' "$(word "$DATA")" "$(word "$PYTHON")" "$(word "$DATA/bin/standin.py")\""""
    for ours, theirs in (
        (_LAUNCHED, launched),
        *((f"REMUDA_{variable}", f"{prefix}_{variable}") for variable in ("DATA_DIR", "ROOT", "URL")),
        ("INSTALL_REMUDA_", f"INSTALL_{prefix}_"),
        ("remuda-server", runtime.server_unit),
        ("remuda-node", runtime.agent_unit),
        ("rancher/remuda", f"rancher/{name}"),
        ("bin/remuda", f"bin/{name}"),
        # k3s' and RKE2's kubectl are in different places; both serve here.
        ('write_launcher "$DATA/bin/', 'place "$HERE/bin/kubectl" "$PREFIX/bin/kubectl" 0755\n    write_launcher "$DATA/bin/'),
    ):
        text = text.replace(ours, theirs)
    assert "-m remuda distro" not in text and "rancher/remuda" not in text
    return text
