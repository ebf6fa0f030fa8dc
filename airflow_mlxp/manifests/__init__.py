"""Typed arguments and users' manifests become Job and PyTorchJob manifests: ``job.build``, ``pytorchjob.build``."""
