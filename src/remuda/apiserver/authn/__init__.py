"""authn"""
