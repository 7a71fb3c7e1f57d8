"""`python -m elias.cli`."""

import sys

from . import main

sys.exit(main())
