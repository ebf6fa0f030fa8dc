"""Operators: arguments become a manifest, then the task defers."""
