"""Configuration: typed sections, YAML files and overrides, checks before anything is loaded."""
