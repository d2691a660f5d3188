"""Simulated nodes: Nodes with heartbeats and pods that run in name only, except pods of our own images, which are processes.

    await run_node(NodeConfig(name="n1", kubeconfig=path, version="v1.36.3+remuda1", root=root))     # one host's node
    await run_nodes(configs, client, clock, rng)                                                     # many, for benches

The Nodes carry `remuda.dev/simulated=true`. `heartbeat` keeps a Node alive, `kubelet` its pods, `scheduler` gives pods a node.
Not here: the loops of kube-controller-manager (`kcm`), started with the scheduler by `..cluster.controllers`.
Read :mod:`.running`, then :mod:`.kubelet`.
"""

from .builtin_programs import BUILT_IN, Program
from .config import SIMULATED, NodeConfig, NodeConfigError, Pace, Taint, parse_label
from .registration import role_labels
from .running import run_node, run_nodes

__all__ = [
    "BUILT_IN",
    "SIMULATED",
    "NodeConfig",
    "NodeConfigError",
    "Pace",
    "Program",
    "Taint",
    "parse_label",
    "role_labels",
    "run_cluster_controllers",
    "run_node",
    "run_nodes",
]
