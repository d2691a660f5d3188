"""The etcd of a server: `process` runs it, `client` asks it, `members` joins and removes, `snapshots` and `restore` keep it."""
