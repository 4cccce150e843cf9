"""`stream_map`: tensors in chunks, and their results joined."""
