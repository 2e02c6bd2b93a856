"""Tests of ``gateway/workshop/engine``."""
