"""local.controllers"""
