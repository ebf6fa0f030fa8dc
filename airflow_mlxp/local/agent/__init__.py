"""local.agent"""
