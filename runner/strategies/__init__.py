"""Strategies: each a small class that explores one module through an Episode.

Registered under the entry-point group `corridor.strategies`, ours and anybody's.
"""
