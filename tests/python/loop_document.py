"""The table of docs/loops.md: the cells of loop_cells.py, those of tests/tensorflow, and loops in C++, each of which is
a test of the engine on real ranks."""

import pathlib
import re

from loop_cells import CELLS, SHARED

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT = "not looked at"
NATIVE = (  # loop, its test, and what that compares: parity, samples, split
    ("one backward, BatchNorm", "JobTest.UnevenSharesWithBatchNormTrainLikeOneProcess", "1e-3", NOT, "is given"),
    ("one backward, a slow worker", "JobTest.ASlowWorkerGetsAFewerSamples", NOT, NOT, "yes"),
    ("one backward, shares of none", "JobTest.EverySampleIsUsedOnceAndAWorkerWithoutAShareCountsForNothing",
     "losses 1e-4", "yes", "is given"),
    ("micro-batches", "JobTest.MicroBatchesGiveTheSameGradientAsTheWholeBatch", "1e-5", NOT, "is given"),
    ("two losses, BatchNorm", "JobTest.SeveralLossesTrainLikeOneProcessAndWaitingIsTakenOutOfTheirTimes",
     "1e-3", NOT, "yes"),
    ("two losses, micro-batches", "PassesTest.SeveralLossesOfOneOptimizerAddUpInChunksToo", "1e-10", NOT, "is given"),
    ("GAN, one optimizer", "GanTest.TwoNetworksWithARateForEachTrainLikeOneProcess", "1e-10", "yes", "yes"),
    ("GAN, two optimizers", "GanTest.TwoOptimizersThatTakeTurnsTrainLikeOneProcessAndWaitingIsTakenOutOfEveryPass",
     "1e-10", "yes", "yes"),
    ("actor and critic", "PassesTest.ActorAndCriticWithAnOptimizerEachAndASharedTrunkTrainLikeOneProcess",
     "1e-10", NOT, "yes"),
    ("lengths", "DocumentsTest.DealtByCostTheyTrainLikeOneProcess", "1e-10", NOT, "yes"),
    ("early exit", "DatasetsTest.ALoopThatIsLeftEndsItsEpochOnRequest", "1e-10", "yes", "is given"),
    ("two datasets", "DatasetsTest.OneAfterTheOtherTrainLikeOneProcessEachWithItsOwnLedger",
     "1e-10", "yes", "is given"),
    ("two datasets, resume", "DatasetsTest.GoOnWhereTheyWereAlsoFromACheckpoint", "1e-10", "yes", "is given"),
    ("resume", "JobTest.ARestoredJobGoesOnBitByBit", "bit by bit", "yes", "is given"),
)  # fmt: skip


def native_tests():
    """The names of all cases of GoogleTest."""
    pattern = re.compile(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)")
    return {".".join(found) for path in (ROOT / "tests").rglob("*.cc") for found in pattern.findall(path.read_text())}


def table():
    rows = [("framework", "loop", "with", "like one process", "each sample once", "split follows")]
    rows += [(one.framework, one.loop, one.feature, one.parity, one.once, "yes") for one in CELLS.values()]
    rows += [(*row, "1e-10", "yes", "yes") for row in SHARED["ROWS"].values()]
    rows += [("native", loop, f"`{test}`", *found) for loop, test, *found in NATIVE]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]) + "\n"


def with_table(text):
    """A document with the table in place of the one that it has."""
    before, _, rest = text.partition("| framework |")
    after = rest.partition("\n\n")[2]
    return before + table() + ("\n" + after if after else "")
