"""`vla doctor`: what keeps a machine from training, found before it is tried.

Importing this package imports no torch: it must work where torch does not. Checks that need torch run in processes of
their own with time limits.
"""
