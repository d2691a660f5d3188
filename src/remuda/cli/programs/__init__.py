"""Commands that run until they are told to stop: serve, controllers, gateway, cluster-agent, kube-api-auth, distro,
provision; and what such a process needs (event loop, signals, systemd, logs).

What runs is in `app`; here are options and sentences for failures.
The cluster agent's image holds a part of this folder: keep imports inside functions.
Read :mod:`.serve`.
"""
