"""Compiled kernels of FedEPM: arrays in, arrays out, nothing but NumPy and Numba.

The folder is ``kernels/`` at the root of the repository and the package is
``fedepm_fast.kernels``; under any other name it would be a second copy of the
same modules, with compiled functions and caches of its own.
"""

if __name__ != "fedepm_fast.kernels":
    raise ImportError(f"the kernels are imported as 'fedepm_fast.kernels', not as {__name__!r}")
