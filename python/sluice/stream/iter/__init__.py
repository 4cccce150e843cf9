"""`stream_iter`: items pulled as slots become free, and results as they land."""
