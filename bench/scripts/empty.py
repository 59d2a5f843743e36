"""Do nothing."""
