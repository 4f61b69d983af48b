"""Reads the profile of the actors that a job names."""

from __future__ import annotations

from ebbtide.data.sources import local_path
from ebbtide.errors import Refused
from ebbtide.profiles import ProfileFile
from ebbtide.spec import RLHFJobSpec
from services.planner.core.planning.profile import read_profile


def find_profile(spec: RLHFJobSpec) -> ProfileFile | None:
    """The file at `decode.profile`, checked; None where the job names none. Raises Refused."""
    uri = spec.decode.profile
    if uri is None:
        return None
    try:
        return read_profile(local_path(uri).read_bytes()).file
    except OSError as error:
        raise Refused(
            f"cannot read {uri}: {error.strerror}", field="/spec/decode/profile"
        ) from None
    except Refused as refused:
        raise Refused(f"{refused.field} {refused.detail}", field="/spec/decode/profile") from None
