"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run: a red test is red again.
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")
