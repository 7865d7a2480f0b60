"""How the bundled model was made is in the repository and not in the wheel."""

from __future__ import annotations

import importlib.util

collect_ignore = [] if importlib.util.find_spec("ragidx.pipelines.train.mini_decoder") else ["test_mini_decoder.py"]
