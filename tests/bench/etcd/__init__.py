"""How fast Remuda is on etcd, and what several servers on one etcd endure: `make bench ARGS=etcd`."""
