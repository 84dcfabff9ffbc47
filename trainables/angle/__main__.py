"""`python -m trainables.angle --help`"""

import sys

from trainables.cli import main

sys.exit(main("angle"))
