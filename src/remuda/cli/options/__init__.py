"""Options that several commands share: listening, certificates, etcd, controllers and leader election, places on disk.

An option of one command is in that command's module. No server code is imported. Read :mod:`.locations` first.
"""
