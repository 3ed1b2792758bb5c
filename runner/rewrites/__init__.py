"""Labelled rewrites of a module: what a test suite should accept, and what it should reject."""
