"""`make bench ARGS=capi`: Cluster API's core with simulated providers, embedded, and beside upstream's on a real Kubernetes."""
