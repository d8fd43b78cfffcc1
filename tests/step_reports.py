"""What a worker measured of a step, for tests of the protocol in one process."""

from isochron import _core


def measured(**fields):
    report = _core.StepReport()
    for name, value in fields.items():
        setattr(report, name, value)
    return report
