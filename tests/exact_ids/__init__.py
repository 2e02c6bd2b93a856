"""Exact token ids with published tokenizers: conversations, hostile texts, and the engines that read the same texts."""
