"""What comes back, while it comes: read events, cut at the stop, fold to one answer. No I/O here."""
