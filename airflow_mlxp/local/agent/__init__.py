"""The node agent: a kubelet that runs pods as local processes and speaks only the Kubernetes API.

It works with the embedded API server and with a real one. What it isn't: no images, no isolation, no CPU limits, no probes,
no network of its own; mount paths and service names are translated in commands, arguments and environment instead.
"""
