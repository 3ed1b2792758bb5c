"""Where untrusted code runs: the Sandbox protocol, its back ends, and the probe."""
