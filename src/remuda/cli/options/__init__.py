"""Options that several commands share: listening, certificates, etcd, controllers and leader election, roles of hosts,
places on disk.

Not here: options of one command, which are in its module. No server code is imported. Read :mod:`.locations` first.
"""
