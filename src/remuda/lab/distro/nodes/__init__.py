"""Simulated nodes: Nodes that say they are there and pods that run in name, those of our own images as real processes.

    await run_node(NodeConfig(name="n1", kubeconfig=path, version="v1.36.3+remuda1", root=root))     # one host's node
    await run_nodes(configs, client, clock, rng)                                                     # many, for benches
    await run_cluster_controllers(client, clock, rng)                                                # where the server leads

The Nodes carry `remuda.dev/simulated=true`. What a Kubernetes needs besides (kube-controller-manager's loops and a scheduler) is
:func:`run_cluster_controllers`; one process of a cluster runs it at a time.
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
