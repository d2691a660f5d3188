"""Snapshots in buckets: a client of S3 and of the services that speak like it.

`place` is a folder of a bucket and how to reach it, `signature` signs requests, `answers` reads answers, `bucket` makes the
requests, `copies` are the snapshots in a folder.
Not here: the hosts' settings (`planner.render.config`), what a host uploads (`lab.distro.etcd`).
Read :mod:`.bucket` first; docs/reference/s3.md has the layout of a folder.
"""
