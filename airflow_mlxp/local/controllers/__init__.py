"""The controllers of the embedded platform: what kube-controller-manager and the training operator do on a cluster."""
