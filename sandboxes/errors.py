"""Everything that can go wrong in Corridor, as one small tree.

It lives in the lowest layer so that each folder can raise from it. A message names the
file, key or image, the offending value, and the next thing to do. Only `main` prints
one, and turns `exit_code` into the process's.
"""


class CorridorError(Exception):
    """Base of all errors that Corridor raises on purpose."""

    exit_code = 1


class UsageError(CorridorError, ValueError):
    """The command line, a sweep file or a dataset folder says something that cannot be."""

    exit_code = 2


class PrerequisiteError(CorridorError):
    """Something that must be there is not: an engine, an image, a package, a key."""

    exit_code = 3


class SandboxError(CorridorError):
    """The place where code runs failed, through no fault of the code."""


class SandboxLost(SandboxError):
    """The container or its probe is gone; a new one may serve."""


class TargetError(SandboxError):
    """A target cannot be measured in its image: it does not import, or has no source."""


class StoreError(CorridorError, OSError):
    """Rows could not be written or read; what was committed before is intact."""


class ModelError(CorridorError):
    """A model gave no answer, for good."""


class BudgetSpent(CorridorError):
    """An episode or the sweep has used what it may use."""
