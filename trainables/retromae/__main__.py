"""`python -m trainables.retromae --help`"""

import sys

from trainables.cli import main

sys.exit(main("retromae"))
