"""What the loops of PyTorch and those of TensorFlow share; needs neither. The rows of docs/loops.md for TensorFlow and
Keras are by the name of the case in pipelines.py."""

ROWS = {
    "mapped": ("tensorflow", "job.step", "tf.data with map"),
    "shuffled": ("tensorflow", "job.step", "tf.data with shuffle"),
    "batched": ("tensorflow", "job.step", "tf.data with batch and unbatch"),
    "padded": ("tensorflow", "job.step", "ragged samples, padded"),
    "augmented": ("tensorflow", "job.step", "augmentation with seeds by sample"),
    "two_losses": ("tensorflow", "two losses", "one tape"),
    "clipped": ("tensorflow", "job.step", "gradients clipped by their norm"),
    "left_early": ("tensorflow", "early exit", "end_epoch"),
    "one_and_another": ("tensorflow", "two datasets", "one after the other"),
    "resumed": ("tensorflow", "resume", "tf.data with shuffle"),
    "fit_pipeline": ("keras", "fit", "tf.data with shuffle"),
    "fit_class_weight": ("keras", "fit", "class_weight"),
    "fit_sample_weight": ("keras", "fit", "weights of samples"),
    "fit_padded": ("keras", "fit", "ragged samples, padded"),
    "fit_repeated": ("keras", "fit", "steps_per_epoch and repeat"),
}


def follows(splits):
    """Whether the split follows the speeds within ten steps: the fast worker, four times as fast, would have four
    fifths. Other work on the machine may move some of it, in one turn of several even to equal shares; a loop whose
    times are measured wrongly stays near them."""
    by_the_tenth = splits[5:10]
    return sum(fast for fast, _ in by_the_tenth) > 1.5 * sum(slow for _, slow in by_the_tenth)
