"""Clusters that somebody wants: the controllers of `provisioning.cattle.io`.

:mod:`.cluster` keeps a clusters.provisioning.cattle.io and its clusters.management.cattle.io in step. :mod:`.provisioningcluster`
makes the objects that a cluster consists of, which :mod:`.graph` works out; :mod:`.provisioninglog` tells its story, and
:mod:`.secret` lets people use their cloud credentials. :mod:`.admission` says what is refused. The rest is next door, in the
rooms of Cluster API and its providers.
"""
