"""`ragidx doctor`: the machine, the packages, and whether a model runs as its method needs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragidx.pipelines.doctor.doctor import examine
    from ragidx.pipelines.doctor.report import Check, DoctorReport
else:
    from ragidx.corpora.faces import face

    __getattr__ = face(__name__, {"Check": "report", "DoctorReport": "report", "examine": "doctor"})

__all__ = ["Check", "DoctorReport", "examine"]
