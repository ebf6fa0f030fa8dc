"""Causes, a table a file; within a table the first match wins."""
