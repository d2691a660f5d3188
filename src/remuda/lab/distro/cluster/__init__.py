"""The parts that a cluster's servers serve: the Kubernetes API on the cluster's etcd (:mod:`.apiserver`), its controllers and
scheduler (:mod:`.controllers`), the supervisor on 9345 and its client, addons from the manifests directory, node passwords,
removal of etcd members.

etcd itself is in `..etcd`.
Read :mod:`.apiserver`, then :mod:`.supervisor`.
"""
