"""`stream_iter`: items pulled as there is room, and results as they land."""
