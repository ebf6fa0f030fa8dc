"""Hooks for tasks that users write themselves."""
