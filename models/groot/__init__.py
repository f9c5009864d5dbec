"""GR00T N1.7: Qwen3-VL features drive an action diffusion transformer. Importing this package imports no torch."""

from __future__ import annotations
