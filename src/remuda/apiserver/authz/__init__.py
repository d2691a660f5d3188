"""authz"""
