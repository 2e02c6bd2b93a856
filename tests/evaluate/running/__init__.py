"""The steps of ``gateway run``."""
