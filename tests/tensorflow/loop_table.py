"""The rows of docs/loops.md for TensorFlow and Keras: by the name of the case in pipelines.py. Needs no TensorFlow."""

ROWS = {
    "mapped": ("tensorflow", "job.step", "tf.data with map"),
    "shuffled": ("tensorflow", "job.step", "tf.data with shuffle"),
    "batched": ("tensorflow", "job.step", "tf.data with batch and unbatch"),
    "padded": ("tensorflow", "job.step", "ragged samples, padded"),
    "two_losses": ("tensorflow", "two losses", "one tape"),
    "clipped": ("tensorflow", "job.step", "gradients clipped by their norm"),
    "fit_pipeline": ("keras", "fit", "tf.data with shuffle"),
}
