"""`python -m services.planner.simulate FILE`: reads files, runs all seeds, writes what came of it.

Ends with one clear line and exit code 2 where the input is wrong.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from ebbtide.documents import JSON_TYPES, YAML_TYPES, parse
from ebbtide.errors import Refused
from services.planner.core.planning.profile import Profile, read_profile
from services.planner.simulate.answers import Row, check_rows
from services.planner.simulate.bar import told
from services.planner.simulate.many import run_all
from services.planner.simulate.pictures import render
from services.planner.simulate.prefill import Prefill
from services.planner.simulate.reading import read_rows
from services.planner.simulate.results import (
    FRONT_SEEDS,
    Inputs,
    Results,
    fronts,
    make_case,
    savings,
    shared_prompts,
)
from services.planner.simulate.scenario import Scenario, WrongScenario, read_scenario
from services.planner.simulate.summary import as_json, summarised, table

WRONG = 2


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        return _simulate(asked)
    except WrongScenario as error:
        _complain(f"ebbtide: {asked.file} cannot be simulated")
        for pointer, detail in error.faults:
            _complain(f"  {pointer}: {detail}")
    except Refused as error:
        where = f"{error.field}: " if error.field else ""
        _complain(f"ebbtide: {where}{error.detail}")
    return WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ebbtide simulate", description=__doc__)
    parser.add_argument("file", type=Path, help="scenario, YAML or JSON")
    parser.add_argument("--out", type=Path, help="folder for report.html and report.json")
    parser.add_argument("--json", action="store_true", help="print report.json instead")
    parser.add_argument("--seeds", type=int, help="instead of the scenario's")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--quick", action="store_true", help="no fronts and no savings by cause")
    return parser


def _simulate(asked: argparse.Namespace) -> int:
    inputs = read_inputs(asked.file)
    seeds = asked.seeds if asked.seeds is not None else inputs.scenario.seeds
    if not 1 <= seeds <= 1000:
        raise Refused("seeds must lie within 1..1000", field="--seeds")
    began = time.monotonic()
    with told(seeds + 2 * (not asked.quick)) as tell:
        tell(0, "every policy on every seed")
        results = run_all(
            inputs,
            seeds=seeds,
            workers=max(asked.workers, 1),
            ended=lambda n: tell(n, "every policy on every seed"),
        )
        few = [seed.seed for seed in results.seeds[:FRONT_SEEDS]]
        tell(seeds, "fronts of time against cost")
        lines = {} if asked.quick else fronts(inputs, few)
        tell(seeds + 1, "savings by cause")
        saved = [] if asked.quick else savings(inputs, few)
    shared = shared_prompts(inputs, make_case(inputs, few[0]))
    document = json.dumps(as_json(results, lines, saved, shared), indent=2) + "\n"
    if asked.out is not None:
        page = render(summarised(results), results, lines, saved, shared)
        _write(asked.out, document, page)
    words = document if asked.json else _words(results, shared, time.monotonic() - began) + "\n"
    sys.stdout.write(words)
    return 0


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")


def _words(results: Results, shared: Prefill | None, seconds: float) -> str:
    lines = [table(results)]
    if shared is not None:
        lines.append(
            f"prompts: {shared.needed:.0f} tokens; engines' caches compute {shared.engine_caches:.0f},"
            f" one length of {shared.length} blocks {shared.single_length:.0f}, a trie {shared.trie:.0f}"
        )
    lines.append(f"{len(results.seeds)} seeds in {seconds:.1f} s")
    return "\n".join(lines)


def _write(folder: Path, document: str, page: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(document)
        (folder / "report.html").write_text(page)
    except OSError as error:
        raise Refused(f"cannot write to {folder}: {error.strerror}", field="--out") from None


def read_inputs(file: Path) -> Inputs:
    """The scenario with the files that it names, relative to its own folder; raises Refused."""
    media = JSON_TYPES[0] if file.suffix == ".json" else YAML_TYPES[0]
    scenario = read_scenario(parse(_bytes(file), media))
    folder = file.resolve().parent
    return Inputs(scenario, _rows(scenario, folder), _profile(scenario, folder))


def _rows(scenario: Scenario, folder: Path) -> Sequence[Row]:
    if scenario.lengths.file is None:
        return ()
    path = folder / scenario.lengths.file
    data = _bytes(path)
    if path.suffix == ".gz":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise Refused(f"{path.name} is not gzip: {error}", field="/lengths/file") from None
    text = data.decode("utf-8", "replace")
    return check_rows(read_rows(text, path.name.removesuffix(".gz")), path.name)


def _profile(scenario: Scenario, folder: Path) -> Profile | None:
    if scenario.profile is None:
        return None
    try:
        return read_profile(_bytes(folder / scenario.profile))
    except Refused as error:
        raise Refused(f"{error.field} {error.detail}", field="/profile") from None


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
