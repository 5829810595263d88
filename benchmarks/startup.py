"""How soon memtui answers, next to importing Textual: `python benchmarks/startup.py`.

Each command is started 15 times as a process of its own; the median wall time counts. What matters
is the last column: `memtui --help` is to stay under half of `import textual.app`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = 15
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "python -c 'import textual.app'": ["-c", "import textual.app"],
    "memtui --help": ["-m", "memtui", "--help"],
    "memtui ops list --help": ["-m", "memtui", "ops", "list", "--help"],
    "memtui bindings list": ["-m", "memtui", "bindings", "list"],
    "memtui query deploy": ["-m", "memtui", "query", "deploy"],
}
YARDSTICK = "python -c 'import textual.app'"


def median_ms(arguments: list[str], environment: dict[str, str]) -> float:
    """Return the median wall time of a Python process in milliseconds."""
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, check=True
        )
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as home:
        environment = os.environ | {"MEMTUI_HOME": home}
        measured = {name: median_ms(words, environment) for name, words in COMMANDS.items()}
    for name, milliseconds in measured.items():
        print(f"{name:32} {milliseconds:7.0f} ms {milliseconds / measured[YARDSTICK]:7.2f}")


if __name__ == "__main__":
    main()
