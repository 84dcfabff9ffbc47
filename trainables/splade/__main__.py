"""`python -m trainables.splade --help`"""

import sys

from trainables.cli import main

sys.exit(main("splade"))
