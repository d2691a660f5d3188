"""Several of our parts in one process, with what a unit test goes without: sockets, child processes, a real etcd, real time."""
