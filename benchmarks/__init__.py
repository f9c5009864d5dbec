"""Benchmarks: ratios against doing it another way in the same process, never timed tests."""
