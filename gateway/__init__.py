"""An OpenAI-compatible gateway that shows every local model the exact prompt it was trained on."""

__version__ = "0.1.0"
