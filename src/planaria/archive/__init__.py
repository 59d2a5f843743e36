"""The disk tier: commits in a directory, written in the background, found again whole or not at all.

Agent and worker both use it, so it lies below them and knows neither. It never raises into training: what the disk does
wrong comes back as a value. Nothing here decides which commit is complete in memory, or who writes which rank.
"""
