"""Asynchronous Kubernetes I/O: access, client, shared watches, log streams, submit, delete and the engine. Knows no Airflow."""
