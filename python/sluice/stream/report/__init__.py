"""What a run did: its numbers, what overlapped, and the pictures."""
