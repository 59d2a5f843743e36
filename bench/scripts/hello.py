"""Write one line: the least a user's script can do and be seen."""

import os

os.write(1, b"hello\n")
