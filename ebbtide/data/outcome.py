"""What the preparing process answers on its standard output, one JSON object (pure)."""

from __future__ import annotations

import msgspec

from ebbtide.wire import Ref


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """Blobs of the DatasetIndex of each part; `eval` is None where the job names none."""

    train: Ref
    eval: Ref | None


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """Bad input. `field` is a JSON pointer into the job."""

    detail: str
    field: str


Outcome = Prepared | Rejected
