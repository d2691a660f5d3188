"""How fast and how large, beside a real kube-apiserver: `make bench`."""
