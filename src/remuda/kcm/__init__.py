"""What kube-controller-manager would do for the embedded API."""
