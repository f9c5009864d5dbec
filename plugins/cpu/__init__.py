"""The CPU backend: everything runs on a laptop."""
