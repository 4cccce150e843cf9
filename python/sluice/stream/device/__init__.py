"""A device: its engine and streams, its slots, and the host memory that is copied."""
