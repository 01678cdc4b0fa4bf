"""The asv suite.

Machine code of one commit must never time another: the compiled kernels' cache is keyed by the
commit that asv is measuring.
"""

import os
import tempfile

if "ASV_COMMIT" in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = os.path.join(
        tempfile.gettempdir(), "fedepm_fast_asv", os.environ["ASV_COMMIT"]
    )
