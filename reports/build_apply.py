"""The table of gains: `python reports/build_apply.py`, from the runs in reports/apply (put there by build.py).

Prints the table; README.md gets it where it has the marks <!-- gains --> and <!-- /gains -->.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from addrfrac import store
from addrfrac.records import Run
from addrfrac.report import applications, facts, markdown

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
RUN = "run.json.gz"
MARKS = re.compile(r"(<!-- gains -->\n).*?(<!-- /gains -->)", re.DOTALL)


def main() -> None:
    """Print the table, and put it into the README if this has a place for it."""
    table = gains_table(HERE / "apply")
    print(table, end="")
    text = README.read_text()
    if table and MARKS.search(text):
        store.write_whole(README, MARKS.sub(lambda marks: marks[1] + table + marks[2], text).encode())


def gains_table(folder: Path) -> str:
    """A row for each run in a folder of the folder, linked to its page; '' where there is none."""
    found = [(file.parent, store.load(file.parent)) for file in sorted(folder.glob(f"*/{RUN}"))]
    runs = [(linked(place, run), run) for place, run in found if run.applied is not None]
    listing = applications.gains(runs)
    plain = [(row[0], *map(markdown.plain, row[1:])) for row in listing.rows]
    return markdown.table(listing.columns, plain) + "\n" if plain else ""


def linked(place: Path, run: Run) -> str:
    page = f"reports/apply/{place.name}/report.html"
    return f"[{markdown.plain(facts.title(run))}]({quote(page)})"


if __name__ == "__main__":
    main()
