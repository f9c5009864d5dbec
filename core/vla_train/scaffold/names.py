"""The names of a new plugin, checked before a file is written."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from vla_backend import API, candidates
from vla_backend.discovery import AUTO
from vla_backend.errors import BackendError

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_LONGEST: Final = 40


class ScaffoldError(BackendError):
    """A new plugin cannot be written as asked."""


@dataclass(frozen=True)
class Names:
    """What the files of a plugin say.

    Attributes:
        name: what `--backend` will take.
        device_type: torch's device type string.
        vendor: maker of the chip, free text.
        extension: package that adds the device to torch, "" if torch knows it by itself.
    """

    name: str
    device_type: str
    vendor: str
    extension: str

    @property
    def distribution(self) -> str:
        return f"vla-backend-{self.name.replace('_', '-')}"

    @property
    def package(self) -> str:
        return f"vla_backend_{self.name}"

    def tokens(self) -> dict[str, str]:
        """Text in place of each `@TOKEN@` of a template."""
        return {
            "NAME": self.name,
            "DEVICE_TYPE": self.device_type,
            "VENDOR": self.vendor,
            "EXTENSION": self.extension,
            "DISTRIBUTION": self.distribution,
            "PACKAGE": self.package,
            "MASK": f"{self.device_type.upper()}_VISIBLE_DEVICES",
            "API": API,
            "VERSION": metadata.version("vla-backend"),
        }


def checked(name: str, device_type: str, vendor: str = "", extension: str | None = None) -> Names:
    """The names, with defaults filled in.

    Args:
        name: of the plugin.
        device_type: torch's device type string.
        vendor: "" for the capitalised name.
        extension: `None` for "torch_<device_type>", "" for none.

    Raises:
        ScaffoldError: a name that cannot be used, or one that an installed plugin has.
    """
    _identifier("The name", name)
    _identifier("The device type", device_type)
    if name == AUTO:
        raise ScaffoldError(f"A backend cannot be named '{AUTO}'.", why="that word asks for the automatic choice")
    installed = candidates()
    if name in installed:
        other = installed[name]
        raise ScaffoldError(
            f"A backend named '{name}' is installed.",
            why=f"it comes from {other.distribution} {other.version} ({other.target})",
            fix="choose another name; two distributions with one name refuse to run",
        )
    vendor = vendor or name.capitalize()
    if not re.fullmatch(r"[^\x00-\x1f\"\\@]+", vendor):
        raise ScaffoldError(f"The vendor {vendor!r} cannot be written into source text.", fix="leave out quotes and @")
    extension = f"torch_{device_type}" if extension is None else extension
    if extension:
        _identifier("The extension", extension)
    return Names(name, device_type, vendor, extension)


def _identifier(what: str, value: str) -> None:
    if _NAME.fullmatch(value) and not keyword.iskeyword(value) and len(value) <= _LONGEST:
        return
    lowered = re.sub(r"[^a-z0-9]+", "_", value.lower()).strip("_")
    usable = _NAME.fullmatch(lowered) and not keyword.iskeyword(lowered) and len(lowered) <= _LONGEST
    raise ScaffoldError(
        f"{what} '{value}' cannot be used.",
        why=f"it becomes part of a Python package: lower-case letters, digits and _, a letter first, no word of the "
        f"language, at most {_LONGEST} characters",
        fix=f"for example '{lowered}'" if usable else "choose another, for example 'mychip'",
    )
