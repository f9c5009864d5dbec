"""Sharded checkpoints that are complete or absent: saving, finding, restoring, inspecting, exporting."""
