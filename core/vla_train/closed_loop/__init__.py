"""Closed-loop evaluation: a policy acts in a simulator. Importing this package imports no torch and no simulator."""
