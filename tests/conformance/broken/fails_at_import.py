"""Needs a package that is not installed."""

from __future__ import annotations

import torch_mychip_that_is_not_installed as vendor

plugin = vendor
