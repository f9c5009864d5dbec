"""Deliberately broken plugins, one per kind of mistake, and the two sound ones they are made from."""
