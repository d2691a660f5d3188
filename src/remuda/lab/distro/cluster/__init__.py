"""The parts that a cluster's servers serve: the Kubernetes API on the cluster's etcd, with its controllers and scheduler
(:mod:`.apiserver`), the supervisor on 9345, addons from the manifests directory, node passwords, rotation of encryption keys,
removal of etcd members.

Not here: etcd itself (`..etcd`), the supervisor's client (`..supervisor_client`). Read :mod:`.apiserver`, then
:mod:`.supervisor`.
"""
