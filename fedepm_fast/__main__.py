"""``python -m fedepm_fast``, the command line."""

from .cli import main

main()
