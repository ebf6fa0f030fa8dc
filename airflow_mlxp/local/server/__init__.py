"""The embedded API server: what kube-apiserver does for Jobs, PyTorchJobs, pods and their surroundings, on loopback."""

from airflow_mlxp.local.server.authorization import Denied
from airflow_mlxp.local.server.server import Server
from airflow_mlxp.local.server.settings import ServerSettings

__all__ = ["Denied", "Server", "ServerSettings"]
