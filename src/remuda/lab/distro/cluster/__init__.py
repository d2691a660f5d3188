"""The parts that a cluster's servers serve: the Kubernetes API on the cluster's etcd, with its controllers and scheduler
(:mod:`.apiserver`), the supervisor on 9345 and its client, addons from the manifests directory, node passwords, removal of etcd
members.

etcd itself is in `..etcd`. Read :mod:`.apiserver`, then :mod:`.supervisor`.
"""
