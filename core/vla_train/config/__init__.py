"""Configuration: typed sections, YAML files and overrides, checks before anything is loaded."""

from __future__ import annotations

from vla_train.config.errors import ConfigError, Problem
from vla_train.config.load import load_config, save_config
from vla_train.config.schema import Config
from vla_train.config.sources import Sources
from vla_train.config.typed import plain

__all__ = ["Config", "ConfigError", "Problem", "Sources", "load_config", "plain", "save_config"]
