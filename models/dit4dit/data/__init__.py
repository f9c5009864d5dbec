"""DiT4DiT's data path. Importing this package imports no torch: the launcher asks it which folders are read."""
