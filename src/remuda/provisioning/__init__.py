"""Clusters that somebody wants: the controllers of `provisioning.cattle.io`.

:mod:`.cluster` keeps a clusters.provisioning.cattle.io and its clusters.management.cattle.io in step; :mod:`.admission` says what
is refused. What a cluster is made of is next door, in the rooms of Cluster API and its providers.
"""
