"""A device and the way to it: its engine and streams, its slots, and the host memory that is copied."""
