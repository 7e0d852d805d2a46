# SPDX-License-Identifier: Apache-2.0
"""`python -m oncemq` is `oncemq`.

May not: do anything else.
Next: cli/main.py.
"""

from oncemq.cli.main import main

if __name__ == "__main__":
    main()
