"""From rows to numbers: views, statistics, leaderboards."""
