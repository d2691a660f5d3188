"""The differential suite: the same requests to Remuda and to a real kube-apiserver, compared answer by answer."""
