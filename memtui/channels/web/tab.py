"""The terminal app of one tab: `python -m memtui.channels.web.tab` with memtui's global options.

Its standard streams are connected to the server of `memtui serve web`: it has no terminal to query.
"""

import sys


def main() -> None:
    """Run the app until its tab is closed, and exit with its exit code."""
    from memtui.app import run_app
    from memtui.channels.cli.errors import report
    from memtui.channels.cli.session import Invocation, global_options

    invocation = global_options(sys.argv[1:]) or Invocation()
    try:
        code = run_app(invocation.paths(), invocation.settings, company=invocation.company)
    except Exception as error:  # noqa: BLE001 - the outermost boundary: nobody sees a traceback
        code = report(error, invocation, as_json=False)
    sys.exit(code)


if __name__ == "__main__":
    main()
