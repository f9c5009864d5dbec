"""Patches of other libraries that have been read, each with the code it may replace.

A patch replaces a function as its author knew it. Where a library has changed that function since, the patch would undo
the change, so that each entry names the versions it was read against and a fingerprint of the code it replaces.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import sys
import textwrap
from dataclasses import dataclass
from typing import Any, Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from vla_backend.installed import distribution_version


@dataclass(frozen=True)
class Patch:
    """One patch.

    Attributes:
        target: dotted path of what it replaces.
        distribution: whose version counts.
        versions: of that distribution, as pip writes ranges.
        fingerprints: of the code it may replace, see `fingerprint`.
        left_out: why it is not applied whatever is installed, "" for one that is.
    """

    target: str
    distribution: str
    versions: str
    fingerprints: tuple[str, ...] = ()
    left_out: str = ""


_QWEN3: Final = "transformers.models.qwen3.modeling_qwen3"
_QWEN3_VL: Final = "transformers.models.qwen3_vl.modeling_qwen3_vl"
_HOST_IMAGES: Final = "it moves image preprocessing to the NPU, also in data workers"
_OLD_FLASH: Final = "transformers caches this mask itself from 4.53 on"
_RMS_NORM: Final = "7f6be55b177fa1d7"
_OWN_NORM: Final = "the backend's own kernel does the same, and asks first whether weight and input have one dtype"

#: What mx_driving 26.1.0 to 26.2.0 patches in the libraries used here.
PATCHES: Final = (
    Patch(f"{_QWEN3}.Qwen3RMSNorm.forward", "transformers", ">=4.57,<6", (_RMS_NORM,), left_out=_OWN_NORM),
    Patch(f"{_QWEN3_VL}.Qwen3VLTextRMSNorm.forward", "transformers", ">=4.57,<6", (_RMS_NORM,), left_out=_OWN_NORM),
    Patch(f"{_QWEN3}.apply_rotary_pos_emb", "transformers", ">=4.57,<6", ("bc6680d4a77c1be9", "f0e978aab1df6bb0")),
    # transformers 5 answers a mask without the last axis expanded; the patch would go back to 4.57.
    Patch(f"{_QWEN3_VL}.Qwen3VLModel.get_placeholder_mask", "transformers", ">=4.57,<5", ("876d8a9ada490462",)),
    Patch(
        f"{_QWEN3_VL}.apply_rotary_pos_emb_vision",
        "transformers",
        ">=4.57,<6",
        ("97aa06734ed1816e",),
        left_out="it gives npu_rotary_mul tensors of three axes, which is documented for four",
    ),
    Patch("transformers.modeling_flash_attention_utils.flash_attn_func", "transformers", "<4.53", left_out=_OLD_FLASH),
    Patch(
        "transformers.modeling_flash_attention_utils.flash_attn_varlen_func",
        "transformers",
        "<4.53",
        left_out=_OLD_FLASH,
    ),
    Patch(
        "transformers.image_processing_utils_fast.BaseImageProcessorFast.preprocess",
        "transformers",
        ">=4.57",
        left_out=_HOST_IMAGES,
    ),
    Patch(
        "transformers.models.qwen2_vl.image_processing_qwen2_vl_fast.Qwen2VLImageProcessorFast._preprocess",
        "transformers",
        ">=4.57",
        left_out=_HOST_IMAGES,
    ),
    Patch(
        "diffusers.models.attention_processor.AttnProcessor2_0.__call__",
        "diffusers",
        "==0.35.1",
        left_out="it expands masks for attention; masks are expanded where they are made",
    ),
)


def find(target: str) -> Patch | None:
    """The entry for what a patch replaces."""
    return next((patch for patch in PATCHES if patch.target == target), None)


def objection(target: str) -> str:
    """Why a patch of `target` must not be applied to what is installed, "" if it fits."""
    patch = find(target)
    if patch is None:
        return "not in the table of patches that have been read (patch_table.py)"
    if patch.left_out:
        return f"left out: {patch.left_out}"
    version = distribution_version(patch.distribution)
    if not version:
        return f"{patch.distribution} is not installed"
    if not SpecifierSet(patch.versions).contains(Version(version), prereleases=True):
        return f"read for {patch.distribution} {patch.versions}, installed is {version}"
    try:
        found = fingerprint(resolve(target))
    except (ImportError, AttributeError) as error:
        return f"{patch.distribution} {version} has no {target} ({error})"
    except (OSError, TypeError) as error:
        return f"the source of {target} cannot be read ({error})"
    if found not in patch.fingerprints:
        return (
            f"{patch.distribution} {version} has other code at {target} than the patch was read for: "
            f"fingerprint {found}, known {', '.join(patch.fingerprints)}"
        )
    return ""


def resolve(target: str, loaded_only: bool = False) -> Any:
    """The object at a dotted path; with `loaded_only` no module is imported for it.

    Raises:
        ImportError, AttributeError: there is none.
    """
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if loaded_only and name not in sys.modules:
            continue
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(error.name or " "):
                raise  # a dependency of the module is missing, not the module
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise ImportError(f"no module {parts[0]}")


def fingerprint(function: Any) -> str:
    """First 16 digits of the SHA-256 of a function's code without comments, docstring and layout.

    Raises:
        OSError, TypeError: the source cannot be read.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    definition = tree.body[0]
    body = getattr(definition, "body", [])
    if len(body) > 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        del body[0]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]
