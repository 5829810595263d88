"""A server that keeps what it reads in a file and sends it back, byte for byte: FILE [EXIT]."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run until the input ends."""
    with Path(sys.argv[1]).open("ab", buffering=0) as kept:
        while chunk := os.read(0, 4096):
            kept.write(chunk)
            while chunk:
                chunk = chunk[os.write(1, chunk) :]
    sys.exit(int(sys.argv[2]) if len(sys.argv) > 2 else 0)


if __name__ == "__main__":
    main()
