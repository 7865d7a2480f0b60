"""How the bundled model was made is in the repository and not in the wheel."""

from __future__ import annotations

from pathlib import Path

import ragidx

collect_ignore = [] if (Path(ragidx.__file__).parent / "benchmarks").is_dir() else ["test_mini_decoder.py"]
