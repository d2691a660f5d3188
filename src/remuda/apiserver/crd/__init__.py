"""CustomResourceDefinitions: what one may say, what becomes of it, and how its objects are served."""
