"""What an episode is, and how thousands are run."""
