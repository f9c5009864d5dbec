"""The training loop and what it is made of. Imports no torch by itself: the launcher reads parts of it first."""
