"""Reads the spec that a process of a job is given (pure)."""

from __future__ import annotations

from pydantic import ValidationError

from ebbtide.errors import Refused
from ebbtide.spec.job import RLHFJobSpec


def read_spec(text: str) -> RLHFJobSpec:
    """The spec in `text` (JSON); raises Refused, in one line that names the first wrong field.

    The operator has checked it, so what is wrong is most likely an image of another version.
    """
    try:
        return RLHFJobSpec.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(("/spec", *map(str, first["loc"])))
        said = f"{where}: {first['msg']} (is this program of the operator's version?)"
        raise Refused(f"not a job's spec: {said}", field="EBBTIDE_SPEC") from None
