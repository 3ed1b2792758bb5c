"""The parts of TeSearch (arXiv 2610.15964) that decide; the strategy that asks and measures uses them."""
