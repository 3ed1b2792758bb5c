"""The part of Corridor that runs inside a container.

Standard library only, Python 3.6 and newer. The host reads `messages` too; the
rest is sent into the container as text when a sandbox opens (`sandboxes.bundle`).

    server  answers the host's frames; keeps one zygote per target
    zygote  has imported what the target needs, never the target; forks steps
    step    what happens in the forked child: confine, run, report
    branches  what coverage.py's analysis says of a module, and of a step's arcs
    confine   limits, identity, namespaces
"""
