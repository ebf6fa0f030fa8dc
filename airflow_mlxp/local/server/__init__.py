"""local.server"""
