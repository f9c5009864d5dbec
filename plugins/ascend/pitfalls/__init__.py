"""The failures that ports to NPUs met, and those in public issue trackers, with what ends each of them here."""

from __future__ import annotations

from typing import Final

from vla_backend.known_error import KnownError
from vla_backend.pitfalls import Pitfall
from vla_backend_ascend.errors_table import ASCEND
from vla_backend_ascend.pitfalls.dit4dit import DIT4DIT
from vla_backend_ascend.pitfalls.groot import GROOT
from vla_backend_ascend.pitfalls.public import PUBLIC
from vla_backend_ascend.pitfalls.public_more import PUBLIC_MORE
from vla_backend_ascend.pitfalls.public_rest import PUBLIC_REST

PITFALLS: Final[tuple[Pitfall, ...]] = (*DIT4DIT, *GROOT, *PUBLIC, *PUBLIC_MORE, *PUBLIC_REST)
ERRORS: Final[tuple[KnownError, ...]] = ASCEND
