"""Isochron for TensorFlow and Keras: one model, trained by unequal machines, each with a batch that suits its speed.

    import isochron.tensorflow as isochron
    job = isochron.Job(global_batch=256)             # first of all; under TF_CONFIG, torchrun, srun, mpirun or alone

Keras:

    job.compile(model, optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(job.dataset((images, labels)), epochs=10, callbacks=[job.callback()])

A loop of your own:

    job.prepare(model, optimizer)
    @job.step                                        # in place of @tf.function
    def train(x, y):
        with tf.GradientTape() as tape:
            loss = loss_function(y, model(x, training=True))    # mean over my samples
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss
    for epoch in job.epochs(10):
        for x, y in job.dataset((images, labels)):
            loss = train(x, y)                       # mean over the global batch
"""

import importlib.util

if importlib.util.find_spec("tensorflow") is None:
    raise ModuleNotFoundError(
        "isochron.tensorflow needs TensorFlow: pip install isochron[tensorflow]", name="tensorflow"
    )

from isochron.errors import Error, InvariantError, NonFiniteError, PeerError, PeerLostError, TimeoutError
from isochron.tensorflow.job import Job
from isochron.tensorflow.options import JobOptions

__all__ = [
    "Error",
    "InvariantError",
    "Job",
    "JobOptions",
    "NonFiniteError",
    "PeerError",
    "PeerLostError",
    "TimeoutError",
]
