"""What every layer may use: parameters and their checks, the registry, files, text, threads."""
