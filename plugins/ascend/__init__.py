"""Placeholder package marker."""
