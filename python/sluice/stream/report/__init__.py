"""Numbers, overlap and pictures of a run."""
