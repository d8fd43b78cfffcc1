"""A loop of one's own on Fashion-MNIST."""

import keras
import tensorflow as tf
from fashion_mnist import load

import isochron.tensorflow as isochron

job = isochron.Job(global_batch=256)
train, test = load()
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Flatten(),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.Dense(10),
    ]
)
optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
job.prepare(model, optimizer)
dataset = job.dataset(train)


@job.step
def step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_function(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return loss


for epoch in job.epochs(2):
    for x, y in dataset:
        loss = step(x, y)
    print(f"epoch {epoch}: loss {float(loss):.3f}, accuracy {(model(test[0]).numpy().argmax(1) == test[1]).mean():.3f}")
