"""`make bench ARGS=provisioning`: the planner, many clusters of hosts in memory, and the whole way on hosts of this machine."""
