"""The engine: configuration, data, training, checkpoints, evaluation, and the `vla` command."""
