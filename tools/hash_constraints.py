"""Write `requirements/ci.txt`, what CI installs with checksums: every package of `constraints.txt` but torch.

`python tools/hash_constraints.py`, after each change of `constraints.txt`. The checksums are those that the index of
this machine's pip gives for wheels of Linux on x86-64, and for source archives. Torch is left out: which of its builds
is taken differs between machines.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).parents[1]
CONSTRAINTS, HASHED = ROOT / "constraints.txt", ROOT / "requirements" / "ci.txt"
WITHOUT = ("torch",)
HEAD = "# Written by tools/hash_constraints.py from constraints.txt, for Linux on x86-64. Used by `make hashed`.\n"


def pins() -> dict[str, str]:
    """The version of each package by its name, without those that have no checksum that holds everywhere."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, version in pairs if name.strip() not in WITHOUT}


def fits(file: str, version: str) -> bool:
    """Whether a file is of that version and can be installed on Linux on x86-64 by a Python from 3.11 on."""
    try:
        if not file.endswith(".whl"):
            return str(parse_sdist_filename(file)[1]) == version
        _, found, _, tags = parse_wheel_filename(file)
    except (InvalidSdistFilename, InvalidWheelFilename):
        return False
    return str(found) == version and any(map(_is_ours, tags))


def _is_ours(tag: Tag) -> bool:
    system = tag.platform == "any" or (tag.platform.startswith("manylinux") and tag.platform.endswith("x86_64"))
    return system and (tag.interpreter.startswith("py") or tag.interpreter == "cp311" or tag.abi == "abi3")


def checksums(names: list[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The files of each package and their checksums, from the index that pip is set up to use."""
    from pip._internal.commands import create_command
    from pip._internal.index.collector import parse_links

    command = create_command("download")
    options, _ = command.parse_args([])
    with command.main_context(), command._build_session(options) as session:
        collector = command._build_package_finder(options, session)._link_collector
        for name in names:
            sources = collector.collect_sources(name, lambda link: [link])
            places = [link for source in sources.index_urls if source for link in source.page_candidates()]
            pages = filter(None, map(collector.fetch_response, places))
            links = [link for page in pages for link in parse_links(page)]
            yield name, [(link.filename, link.hash) for link in links if link.hash_name == "sha256"]


def main() -> None:
    wanted, text = pins(), HEAD
    for name, files in checksums(list(wanted)):
        found = sorted({digest for file, digest in files if fits(file, wanted[name])})
        if not found:
            sys.exit(f"The index has no file with a checksum for {name} {wanted[name]}.")
        text += " \\\n".join([f"{name}=={wanted[name]}", *(f"    --hash=sha256:{digest}" for digest in found)]) + "\n"
    HASHED.parent.mkdir(exist_ok=True)
    HASHED.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
